"""Machine files: a language for machines that people who do not program can read, in seven languages (contract §9)."""

from bide.authoring.language.checking import check_text
from bide.authoring.language.definition import MachineFile, load
from bide.authoring.language.formatting import format_file
from bide.authoring.language.providers import Provider, Surroundings
from bide.authoring.language.translating import translate

__all__ = ["MachineFile", "Provider", "Surroundings", "check_text", "format_file", "load", "translate"]
