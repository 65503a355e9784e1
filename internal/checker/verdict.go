package checker

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// verdict is what one check makes of one endpoint. The zero verdict is that
// of a new endpoint: unhealthy until its first probe passes.
type verdict struct {
	healthy  bool
	timedOut bool // unhealthy, and the last failure was a timeout
	checked  bool // a probe has ended
	passes   uint32
	failures uint32
	blind    uint32 // probes in a row that could not be made
	unknown  bool   // so many that the verdict has no ground
}

// record counts an outcome as Envoy does. changed tells that healthy flipped,
// pending that it would with more outcomes like this one.
func (v *verdict) record(o Outcome, c *check) (changed, pending bool) {
	if o == Blind {
		v.blind++
		v.unknown = v.unknown || v.blind >= c.unhealthyThreshold
		return false, false
	}
	first := !v.checked
	v.checked, v.blind, v.unknown = true, 0, false
	if o == Passed {
		v.failures = 0
		if v.healthy {
			return false, false
		}
		v.passes++
		if !first && v.passes < c.healthyThreshold {
			return false, true
		}
		v.healthy, v.timedOut, v.passes = true, false, 0
		return true, false
	}
	v.passes = 0
	if v.healthy {
		v.failures++
		if o != Failed && v.failures < c.unhealthyThreshold {
			return false, true
		}
		v.healthy, changed = false, true
	}
	v.failures = 0
	v.timedOut = o == TimedOut
	return changed, false
}

func (v *verdict) status() corev3.HealthStatus {
	switch {
	case v.unknown:
		return corev3.HealthStatus_UNKNOWN
	case v.healthy:
		return corev3.HealthStatus_HEALTHY
	case v.timedOut:
		return corev3.HealthStatus_TIMEOUT
	default:
		return corev3.HealthStatus_UNHEALTHY
	}
}

// inherited is the verdict of a new check on an endpoint whose status is known
// already: it keeps its health, and the first probe that passes counts. A
// status that is unknown because nothing was probed stays so until a probe.
func inherited(s corev3.HealthStatus) verdict {
	return verdict{
		healthy: s == corev3.HealthStatus_HEALTHY, timedOut: s == corev3.HealthStatus_TIMEOUT, unknown: s == corev3.HealthStatus_UNKNOWN,
	}
}

// gravity orders the statuses of checks: the gravest is the endpoint's.
var gravity = map[corev3.HealthStatus]int{
	corev3.HealthStatus_HEALTHY: 0, corev3.HealthStatus_UNKNOWN: 1, corev3.HealthStatus_TIMEOUT: 2, corev3.HealthStatus_UNHEALTHY: 3,
}

// combined is the status of an endpoint with several checks: healthy if all
// are, and unhealthy rather than timed out.
func combined(tasks []*task) corev3.HealthStatus {
	out := corev3.HealthStatus_HEALTHY
	for _, t := range tasks {
		if s := t.verdict.status(); gravity[s] > gravity[out] {
			out = s
		}
	}
	return out
}
