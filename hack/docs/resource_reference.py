"""Generates one page for each custom resource from its model."""

from bayplan.resources.crd_generation import overlaid_definitions, part_of
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource

from hack.docs.field_tables import table, type_section, types_reached

HEADER = "<!-- Generated from the code by `make docs`; edit the descriptions there, not this page. -->\n\n"


def resource_page(resource: type[CustomResource]) -> str:
    """Generate the page of a resource.

    Args:
        resource: The model.

    Returns:
        Markdown.
    """
    definition = resource.definition
    definitions = overlaid_definitions(resource.model_json_schema(by_alias=True))
    scope = "namespaced" if definition.namespaced else "cluster-scoped"
    names = f"`{GROUP}/{VERSION}`, {scope}, `kubectl get {definition.plural}` or `{definition.short_name}`."
    parts = [f"{HEADER}# {definition.kind}\n\n{definition.description}\n\n{names}\n"]
    if definition.rules:
        rules = "".join(f"- `{rule.field_path.lstrip('.')}`: {rule.message}\n" for rule in definition.rules)
        parts.append(f"The API server rejects objects that break these rules:\n\n{rules}")
    done: set[str] = set()
    for name, heading in (("spec", "Spec"), ("status", "Status")):
        parts.append(f"## {heading}\n")
        root = part_of(resource, name).__name__
        for reached in types_reached(root, definitions):
            if reached not in done and "properties" in definitions[reached]:
                done.add(reached)
                parts.append(type_section(reached, definitions, 3))
    rows = [(column.name, "`-o wide`" if column.wide else "", column.description) for column in definition.columns]
    columns = table(("column", "shown with", "meaning"), rows)
    command = f"`kubectl get {definition.plural}`"
    parts.append(f"## Columns\n\n{command} shows the name, these columns, and the age:\n\n{columns}")
    return "\n".join(parts)
