"""Software-in-the-loop drones: what cflib takes for Crazyflies, in front of simulated bodies.

They follow the documented behaviour of the firmware; they are not firmware, and no air flows between them.
"""
