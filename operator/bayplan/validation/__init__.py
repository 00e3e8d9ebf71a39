"""All that is wrong with manifests, told without a cluster."""
