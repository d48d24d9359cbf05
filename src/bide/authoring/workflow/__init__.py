"""Workflows: durable functions that run from the top on every turn and get stored results back (contract §5)."""

from bide.authoring.workflow.definition import Workflow
from bide.authoring.workflow.restarting import Restart
from bide.authoring.workflow.step import Step, StepOptions
from bide.authoring.workflow.waits import Wait

__all__ = ["Restart", "Step", "StepOptions", "Wait", "Workflow"]
