"""Scan gateway: reads of SG-5 tunnels in, parcels out to the warehouse system."""

__version__ = "2.7.0"
