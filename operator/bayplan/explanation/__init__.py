"""Why a pod goes where it goes, or nowhere: for people, and as a document.

Owns the model of an explanation, how it is built from an examined attempt, and how it is printed. It must not know
where the cluster came from: the running operator, an API server and files all end here.
"""
