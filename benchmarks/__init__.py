"""Speed and memory of lastlayer, as ratios against nn.Linear and against the vbll package."""
