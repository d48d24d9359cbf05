"""The testing kit: the production engine and stores with a virtual clock, in the test's own process."""

from bide.testing.exploring import Exploration, Explored, PropertyBroken, explore
from bide.testing.stubs import Call, Stub
from bide.testing.world import World, world

__all__ = ["Call", "Exploration", "Explored", "PropertyBroken", "Stub", "World", "explore", "world"]
