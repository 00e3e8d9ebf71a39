"""One page for each custom resource.

Owns what such a page says beside its tables: how the resource is called, its columns, its rules. It must not hold
anything that the models do not say.
"""

from bayplan.resources.crd_generation import overlaid_definitions, part_of
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource

from hack.docs.field_tables import table, type_section, types_reached

HEADER = "<!-- Made from the code by `make docs`; edit the descriptions there, not this page. -->\n\n"


def resource_page(resource: type[CustomResource]) -> str:
    """Write the page of a resource.

    Args:
        resource: The model.

    Returns:
        Markdown.
    """
    definition = resource.definition
    definitions = overlaid_definitions(resource.model_json_schema(by_alias=True))
    scope = "in a namespace" if definition.namespaced else "cluster-scoped"
    names = f"`{GROUP}/{VERSION}`, {scope}, `kubectl get {definition.plural}` or `{definition.short_name}`."
    parts = [f"{HEADER}# {definition.kind}\n\n{definition.description}\n\n{names}\n"]
    if definition.rules:
        rules = "".join(f"- `{rule.field_path.lstrip('.')}`: {rule.message}\n" for rule in definition.rules)
        parts.append(f"The API server refuses objects that do not keep to these rules:\n\n{rules}")
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
    parts.append(f"## Columns\n\n`kubectl get {definition.plural}` shows the name, these, and the age:\n\n{columns}")
    return "\n".join(parts)
