"""The custom resources as pydantic models; their CustomResourceDefinitions are generated from the same models."""
