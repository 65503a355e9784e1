package group

import (
	"fmt"
	"slices"
	"time"
)

// Options of a Node. Self is required.
type Options struct {
	Self  Identity
	Peers []string // names of the other replicas of the group

	Heartbeat time.Duration // between statuses, and between looks at the reachable replicas; default 1 s
	// Deadline is how long after sending a renewal that the engine confirmed a leader may
	// publish; default 7 s. The engine's lease must be longer (10 s): the difference is for
	// clocks that run at different speeds.
	Deadline      time.Duration
	Renew         time.Duration // between renewals; default 2 s
	Campaign      time.Duration // between attempts to acquire; default 2 s
	EngineTimeout time.Duration // after which an answer is given up; default 3 s
	// Gather is how long a winner waits for the claims and versions of other replicas, before it
	// claims; default 1 s.
	Gather time.Duration
	// GatherLost is how long it waits for a plan if the group must have had one, but neither
	// this replica nor another one that it has heard has any; default 10 s, at least Gather.
	GatherLost time.Duration
	// Rest is how long a replica does not campaign after it stepped down; default 30 s.
	Rest time.Duration
	// StepDownEvery bounds how often a leader steps down because another replica
	// reaches more of the group; default 5 min.
	StepDownEvery time.Duration
	// Patience is how long a client that shows a newer version waits for it; default 5 s.
	Patience time.Duration
}

func (o Options) complete() (Options, error) {
	if err := o.Self.validate(); err != nil {
		return o, fmt.Errorf("replica: %w", err)
	}
	o.Peers = slices.Sorted(slices.Values(o.Peers))
	for i, p := range o.Peers {
		if err := (Identity{Name: p}).validate(); err != nil {
			return o, fmt.Errorf("replica: peer %d: %w", i+1, err)
		}
		if p == o.Self.Name || i > 0 && p == o.Peers[i-1] {
			return o, fmt.Errorf("replica: %q is named twice: each replica of a group needs a name of its own", p)
		}
	}
	if len(o.Peers)+1 > MaxReplicas {
		return o, fmt.Errorf("replica: %d replicas in the group, at most %d are allowed", len(o.Peers)+1, MaxReplicas)
	}
	for _, d := range []struct {
		set *time.Duration
		def time.Duration
	}{
		{&o.Heartbeat, time.Second},
		{&o.Deadline, 7 * time.Second},
		{&o.Renew, 2 * time.Second},
		{&o.Campaign, 2 * time.Second},
		{&o.EngineTimeout, 3 * time.Second},
		{&o.Gather, time.Second},
		{&o.Rest, 30 * time.Second},
		{&o.StepDownEvery, 5 * time.Minute},
		{&o.Patience, 5 * time.Second},
	} {
		if *d.set <= 0 {
			*d.set = d.def
		}
	}
	if o.GatherLost <= 0 {
		o.GatherLost = 10 * o.Gather
	}
	return o, nil
}

// fresh is how long ago a replica may have been heard to count as live: two
// heartbeats, and half of one for the way.
func (o Options) fresh() time.Duration { return 2*o.Heartbeat + o.Heartbeat/2 }
