package server

import (
	"context"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/replica"
)

// operatedReplicas shows the group to operators.
type operatedReplicas struct{ r *replicas }

// State implements [admin.Replicas].
func (o operatedReplicas) State() admin.ReplicaGroup {
	s := o.r.member.Status()
	out := admin.ReplicaGroup{
		Group: s.Group, Name: s.Name, Role: s.Role, Since: s.Since, Leader: s.Leader, LedSince: s.LedSince, Epoch: s.Epoch, Engine: s.Engine, Behind: s.Behind,
		Removes: s.Removes, Spare: s.Spare, Agreed: o.r.configuration.agreed(), InForce: o.r.configuration.digestOfPlan(), Alarms: s.Alarms,
	}
	if w := o.r.election.warnings.Load(); w != nil {
		out.EngineWarnings = *w
	}
	for _, q := range s.Replicas {
		out.Replicas = append(out.Replicas, admin.ReplicaState(q))
	}
	return out
}

// Order implements [admin.Replicas].
func (o operatedReplicas) Order(ctx context.Context, f admin.Forwarded) (status int, body []byte, forwarded bool, err error) {
	a, forwarded, err := o.r.member.Order(ctx, replica.Order(f))
	return a.Status, a.Body, forwarded, err
}

// StepDown implements [admin.Replicas].
func (o operatedReplicas) StepDown(who string) (string, error) { return o.r.member.StepDown(who) }

// AcceptConfig implements [admin.Replicas].
func (o operatedReplicas) AcceptConfig(digest string) error { return o.r.configuration.accept(digest) }
