"""Configuration as people write it: models, defaults and validation; no plugin and no cluster is known here."""
