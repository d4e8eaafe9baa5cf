"""The paper's figures that need no tables: toy problems, regularisers, sweeps of priors."""
