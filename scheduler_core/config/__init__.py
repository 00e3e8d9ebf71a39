"""Configuration that users write: models, defaults and validation, without plugins and cluster."""
