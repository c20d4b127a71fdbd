"""S5: what do more workers give, what does joining over a network cost, how long does a loss of a worker last, and what do
1,000 workers and 100,000 runs cost the control plane?"""
import measure
from suites import scale_joined, scale_losses, scale_pair, scale_placement, scale_simulated

PARTS = {"pair": scale_pair, "simulated": scale_simulated, "joined": scale_joined, "losses": scale_losses,
         "placement": scale_placement}


def run(options):
    return measure.run_parts(PARTS, options)
