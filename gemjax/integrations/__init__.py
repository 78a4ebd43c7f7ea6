"""GEM in front of agents that people run. One module a framework; none imports its framework before it is used."""
