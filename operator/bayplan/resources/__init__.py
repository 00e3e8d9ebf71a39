"""The custom resources as pydantic models; what the API server admits and what the operator reads are one text."""
