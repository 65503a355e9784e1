package member

import (
	"errors"
	"fmt"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/replica/group"
)

// self is this server as one replica of its group: which role it has, and which plan of
// the group it has.
type self struct {
	*replica.Replica

	name string // its own
}

// opened is a plan of another replica, with what operators wrote.
type opened struct {
	*plan.Opened

	operators written // without the services of the API, which the plan has
	digest    string  // of the configuration in force; empty in plans of earlier programs
}

// leads reports whether this replica makes plans.
func (s *self) leads() bool {
	role, _ := s.Role()
	return role == group.Leading || role == group.Caretaker
}

// leading returns an error unless this replica leads.
func (s *self) leading() error {
	if role, _ := s.Role(); role != group.Leading {
		return group.ErrNotLeading
	}
	return nil
}

// explained tells operators which replica decides.
func (s *self) explained(err error) error {
	if !errors.Is(err, group.ErrNotLeading) {
		return err
	}
	status := s.Status()
	engine := false
	for i := range status.Replicas {
		q := &status.Replicas[i]
		if q.Cares {
			return fmt.Errorf("%w: no replica leads the group, because the election engine can't be reached; replica %s is the caretaker: "+
				"health counts, and weights stay as they are", control.ErrFollower, q.Name)
		}
		engine = engine || q.Live && q.Engine
	}
	switch {
	case status.Leader != "" && status.Leader != s.name:
		return fmt.Errorf("%w: replica %s leads the group; ask it", control.ErrFollower, status.Leader)
	case !engine:
		return fmt.Errorf("%w: no replica leads the group, because the election engine can't be reached", control.ErrFollower)
	}
	if status.Awaits != "" {
		return fmt.Errorf("%w: no replica leads the group at the moment: %s", control.ErrFollower, status.Awaits)
	}
	return fmt.Errorf("%w: no replica leads the group at the moment", control.ErrFollower)
}

// received returns the plan that this replica serves, with the epoch of its claim; nil where
// there is none, and for a plan of this replica itself.
func (s *self) received() (o *opened, epoch uint64) {
	served, ok := s.Served()
	if !ok {
		return nil, 0
	}
	o, _ = served.Opened.(*opened)
	return o, served.Claim.Epoch
}

// base returns the newest plan of the group, which a new leader goes on from; nil where
// there is none.
func (s *self) base() *opened {
	if base, ok := s.Base(); ok {
		o, _ := base.Opened.(*opened)
		return o
	}
	return nil
}
