package replica

import "github.com/isobar-xds/isobar/internal/replica/group"

// Self returns the identity of this replica.
func (r *Replica) Self() group.Identity { return r.self }
