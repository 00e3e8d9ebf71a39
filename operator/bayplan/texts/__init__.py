"""Text for terminals and logs, output formats, and safe parsing of YAML."""
