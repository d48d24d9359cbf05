"""The pipeline style: `definition` is what users build, `turn` what the run does, `work` what items go through."""

from bide.authoring.pipeline.definition import Pipeline
from bide.authoring.pipeline.items import Item, Items, Rejected

__all__ = ["Item", "Items", "Pipeline", "Rejected"]
