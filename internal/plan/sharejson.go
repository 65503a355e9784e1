package plan

import (
	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/appendjson"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/load"
)

func appendDecision(b *appendjson.Buffer, d *sharedDecision) {
	b.Open('{')
	b.Key("saved")
	appendSavedService(b, &d.Saved)
	b.Key("coverage")
	b.Float(d.Coverage)
	b.OptionalString("hold", d.Hold)
	if d.Paused != nil {
		b.Key("paused")
		b.Any(d.Paused)
	}
	appendjson.OptionalArray(b, "inputs", d.Inputs, appendInputState)
	b.Key("findings")
	appendDeviations(b, &d.Deviations)
	if len(d.Limited) > 0 {
		b.Key("limited")
		b.Any(d.Limited)
	}
	b.OptionalFloats("call_costs", d.Costs)
	if len(d.Callers) > 0 {
		b.Key("callers")
		b.Any(d.Callers)
	}
	b.OptionalBool("joint", d.Joint)
	b.OptionalBool("alone", d.Alone)
	b.OptionalFloat("plan_gap", d.Gap)
	if d.Policy != [2]float64{} {
		b.Key("policy")
		b.Floats(d.Policy[:])
	}
	b.Key("sites")
	appendjson.Array(b, d.Sites, appendSharedSite)
	b.Key("result")
	appendSharedResult(b, &d.Result)
	if d.Solved != nil {
		b.Key("solved")
		b.Any(d.Solved)
	}
	b.Close('}')
}

func appendInputState(b *appendjson.Buffer, s *InputState) {
	b.Open('{')
	b.Key("input")
	b.String(string(s.Input))
	b.Key("level")
	b.String(string(s.Level))
	b.OptionalFloat("age_seconds", s.Age)
	b.OptionalFloat("share", s.Share)
	b.Close('}')
}

func appendDeviations(b *appendjson.Buffer, d *load.Deviations) {
	b.Open('{')
	b.Key("Service")
	b.String(d.Service)
	appendUsual(b, "Background", d.Unmanaged)
	appendUsual(b, "Unreported", d.Unreported)
	appendUsual(b, "Barred", d.Barred)
	appendUsual(b, "Unreachable", d.Unreachable)
	appendUsual(b, "Outages", d.Outages)
	appendUsual(b, "Opening", d.Opening)
	appendUsual(b, "Rising", d.Rising)
	b.Key("Rounds")
	appendjson.Array(b, d.Rounds, func(b *appendjson.Buffer, r *load.Round) {
		b.Open('{')
		b.Key("Source")
		appendLocality(b, &r.Source)
		b.Key("Requests")
		b.Float(r.Requests)
		b.Key("Off")
		b.Float(r.Off)
		b.Close('}')
	})
	appendUsual(b, "Deviating", d.Deviating)
	appendUsual(b, "Individual", d.Individual)
	b.Close('}')
}

// appendUsual appends a list that is usually nil.
func appendUsual[T any](b *appendjson.Buffer, name string, list []T) {
	b.Key(name)
	if list == nil {
		b.Null()
		return
	}
	b.Any(list)
}

func appendSharedSite(b *appendjson.Buffer, s *sharedSite) {
	b.Open('{')
	b.Key("group")
	b.Int(int64(s.Group))
	b.Key("nominal")
	b.Float(s.Nominal)
	b.Key("capacity")
	b.Float(s.Capacity)
	b.Key("ceiling")
	b.Float(s.Ceiling)
	b.Key("scale")
	b.Float(s.Scale)
	b.OptionalFloat("background", s.Unmanaged)
	b.OptionalBool("preferred", s.Preferred)
	b.OptionalBool("unreachable", s.Unreachable)
	b.OptionalBool("drained", s.Drained)
	b.Close('}')
}

func appendSharedResult(b *appendjson.Buffer, r *sharedResult) {
	b.Open('{')
	b.Key("sites")
	appendjson.Array(b, r.Sites, appendSharedSite)
	b.Key("sources")
	appendjson.Array(b, r.Sources, appendSharedSource)
	b.OptionalFloat("drop", r.Drop)
	if r.Classes != nil {
		b.Key("classes")
		b.Any(r.Classes)
	}
	b.Key("load")
	b.Floats(r.Load)
	b.Key("mode")
	b.String(r.Mode.String())
	b.Key("policy")
	b.String(r.Policy.String())
	b.OptionalFloat("max_shift", r.MaxShift)
	if r.Settings != (isobar.AssignmentSettings{}) {
		b.Key("settings")
		b.Any(r.Settings)
	}
	b.Key("groups")
	b.Ints(r.Groups)
	b.OptionalInts("over", r.Over)
	b.Close('}')
}

func appendSharedSource(b *appendjson.Buffer, s *sharedSource) {
	b.Open('{')
	b.Key("source")
	appendLocality(b, &s.Source)
	b.Key("demand")
	b.Float(s.Demand)
	if s.Mix != (assign.Mix{}) {
		b.Key("mix")
		b.Floats(s.Mix[:])
	}
	b.OptionalFloats("target", s.Target)
	b.OptionalFloats("want", s.Want)
	b.Key("shares")
	b.Floats(s.Shares)
	b.OptionalInts("below", s.Below)
	appendjson.OptionalArray(b, "reasons", s.Reasons, appendReason)
	b.Key("assignment")
	appendAssignment(b, s.Assignment)
	b.Key("priorities")
	appendjson.Array(b, s.Priorities, func(b *appendjson.Buffer, p *[]sharedWeight) {
		appendjson.Array(b, *p, func(b *appendjson.Buffer, w *sharedWeight) {
			b.Open('[')
			b.Int(int64(w[0]))
			b.Int(int64(w[1]))
			b.Close(']')
		})
	})
	b.Close('}')
}

func appendReason(b *appendjson.Buffer, r *assign.Reason) {
	b.Open('{')
	b.Key("code")
	b.String(string(r.Code))
	if !r.Locality.IsZero() {
		b.Key("locality")
		appendLocality(b, &r.Locality)
	}
	b.Key("text")
	b.String(r.Text)
	b.Close('}')
}

// appendAssignment appends an assignment without its priorities.
func appendAssignment(b *appendjson.Buffer, a *isobar.Assignment) {
	if a == nil || a.Priorities != nil || a.Classes != nil {
		b.Any(a)
		return
	}
	b.Open('{')
	b.Key("service")
	b.String(a.Service)
	b.Key("source")
	appendLocality(b, &a.Source)
	b.Key("priorities")
	b.Null()
	b.OptionalFloat("drop", a.Drop)
	b.Key("overprovisioning_factor")
	b.Int(int64(a.OverprovisioningFactor))
	b.OptionalBool("weighted_priority_health", a.WeightedPriorityHealth)
	b.OptionalInt("endpoint_stale_after", int64(a.EndpointStaleAfter))
	b.OptionalInt("resource_ttl", int64(a.ResourceTTL))
	b.Close('}')
}
