"""The scheduling queue: pods that wait, gangs, nominations, and the rules by which events requeue pods."""
