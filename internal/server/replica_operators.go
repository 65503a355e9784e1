package server

import (
	"context"
	"net/http"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/replica"
)

// operated is what operators see of the group; nil where there is none.
func (r *replicas) operated() admin.Replicas {
	if r == nil {
		return nil
	}
	return operatedReplicas{r}
}

// operatedReplicas shows the group to operators.
type operatedReplicas struct{ r *replicas }

// State implements [admin.Replicas].
func (o operatedReplicas) State() admin.ReplicaGroup {
	s := o.r.replica.Status()
	out := admin.ReplicaGroup{
		Group: s.Group, Name: s.Name, Role: s.Role, Since: s.Since, Leader: s.Leader, LedSince: s.LedSince, Epoch: s.Epoch, Engine: s.Engine, Behind: s.Behind,
		Removes: s.Removes, Spare: s.Spare, Agreed: o.r.agreed(), InForce: o.r.configInForce(), Alarms: s.Alarms,
	}
	if w := o.r.engineWarnings.Load(); w != nil {
		out.EngineWarnings = *w
	}
	for _, q := range s.Replicas {
		out.Replicas = append(out.Replicas, admin.ReplicaState(q))
	}
	return out
}

// Order implements [admin.Replicas].
func (o operatedReplicas) Order(ctx context.Context, f admin.Forwarded) (status int, body []byte, forwarded bool, err error) {
	a, forwarded, err := o.r.replica.Order(ctx, replica.Order(f))
	return a.Status, a.Body, forwarded, err
}

// ordered carries out what an operator wrote on another replica.
func (r *replicas) ordered(ctx context.Context, o replica.Order) replica.Answer {
	if r.s.admin == nil {
		return replica.Answer{Status: http.StatusServiceUnavailable, Body: []byte(`{"error": "the leader of the group has no admin interface"}`)}
	}
	status, body := r.s.admin.CarryOut(ctx, admin.Forwarded(o))
	return replica.Answer{Status: status, Body: body}
}

// StepDown implements [admin.Replicas].
func (o operatedReplicas) StepDown(who string) (string, error) { return o.r.replica.StepDown(who) }

// AcceptConfig implements [admin.Replicas].
func (o operatedReplicas) AcceptConfig(digest string) error { return o.r.acceptConfig(digest) }
