package admin

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Drain is a write that takes endpoints out of traffic.
type Drain struct {
	Health   plan.Drain       // one endpoint, by the word of an operator
	Services []isobar.Service // else: what is to stand in place of services of the same names
}

// maxBreaches bounds what the refusal of a drain names.
const maxBreaches = 20

// drainUnchecked warns of a drain that goes ahead without its check: what has to
// come out of traffic must not wait for arithmetic.
const drainUnchecked = "it was not checked whether the remaining capacity can carry the traffic: "

// allowDrain reports whether a write that drains may happen. What is left must keep
// its ceilings, unless the request forces the write; a refusal is answered. The
// caller holds s.drains, so that two drains that are harmless alone are not both
// let through.
func (s *objectAPI) allowDrain(w http.ResponseWriter, r *http.Request, d *Drain) (warnings []Problem, ok bool) {
	force, ok := forced(w, r)
	if !ok {
		return nil, false
	}
	if force || s.opts.Operator == nil {
		return nil, true
	}
	breaches, err := s.opts.Operator.Breaches(r.Context(), d)
	if gone := r.Context().Err(); gone != nil { // so nobody would read a refusal; it did not wait for s.drains to be done unchecked
		fail(w, http.StatusServiceUnavailable, Problem{Error: "the caller disconnected before the drain was checked: " + gone.Error(), Fix: "try again"})
		return nil, false
	}
	if errors.Is(err, isobar.ErrNotFound) || errors.Is(err, isobar.ErrInvalid) {
		return nil, true // the write itself will say so
	}
	if err != nil {
		s.opts.Logger.Warn("a drain was not checked", "error", err)
		return []Problem{{Error: drainUnchecked + err.Error()}}, true
	}
	if len(breaches) == 0 {
		return nil, true
	}
	p := Problem{Error: "the remaining capacity could not carry the traffic: " + breaches[0]}
	if rest, ok := strings.CutPrefix(breaches[0], plan.NoReserve); ok { // it carries the traffic, but no further loss
		p = Problem{Error: "nothing breaks at once, but no reserve is left: " + rest}
	}
	p.Fix = "add capacity first, or force it: ?force=true, or --force on the command line"
	for i, text := range breaches {
		if i == maxBreaches {
			break
		}
		p.Problems = append(p.Problems, Problem{Error: text})
	}
	fail(w, http.StatusConflict, p)
	return nil, false
}

// beginDrain locks s.drains for a request that drains an endpoint; unlock releases it
// and may be called more than once. Rollouts drain many endpoints at once, and each
// may wait long: the limit leaves places for other writes, such as that an endpoint is
// unhealthy. Without ok the request is answered.
func (s *objectAPI) beginDrain(w http.ResponseWriter) (unlock func(), ok bool) {
	select {
	case s.draining <- struct{}{}:
	default:
		failBusy(w)
		return nil, false
	}
	s.drains.Lock()
	return sync.OnceFunc(func() {
		s.drains.Unlock()
		<-s.draining
	}), true
}

// beginReplace asks allowDrain about what is to replace services. With ok the
// caller has s.drains, and gives it back by unlock, once or more often.
func (s *objectAPI) beginReplace(w http.ResponseWriter, r *http.Request, next []isobar.Service) (warnings []Problem, unlock func(), ok bool) {
	s.drains.Lock()
	unlock = sync.OnceFunc(s.drains.Unlock)
	defer func() {
		if !ok { // also when the check panics
			unlock()
		}
	}()
	if drained := s.drainsOf(next); len(drained) > 0 {
		warnings, ok = s.allowDrain(w, r, &Drain{Services: drained})
		return warnings, unlock, ok
	}
	return nil, unlock, true
}

// forced reads the parameter force.
func forced(w http.ResponseWriter, r *http.Request) (force, ok bool) {
	text := r.URL.Query().Get("force")
	if text == "" {
		return false, true
	}
	force, err := strconv.ParseBool(text)
	if err != nil {
		fail(w, http.StatusBadRequest, Problem{Error: "neither true nor false", Place: "force=" + text, Fix: "send force=true, or leave it out"})
		return false, false
	}
	return force, true
}

// drainsOf returns those of the services that leave one that stands now with fewer
// endpoints for traffic in some locality.
func (s *objectAPI) drainsOf(next []isobar.Service) []isobar.Service {
	var out []isobar.Service
	for i := range next {
		obj, err := s.opts.Objects.Get(next[i].Name)
		if err == nil && fewer(&obj.Service, &next[i]) {
			out = append(out, next[i])
		}
	}
	return out
}

func fewer(now, next *isobar.Service) bool {
	left := map[isobar.Locality]int{}
	for i := range next.Localities {
		left[next.Localities[i].Locality] = usable(&next.Localities[i])
	}
	for i := range now.Localities {
		if usable(&now.Localities[i]) > left[now.Localities[i].Locality] {
			return true
		}
	}
	return false
}

func usable(l *isobar.ServiceLocality) int {
	n := 0
	for i := range l.Endpoints {
		if l.Endpoints[i].Health.Usable() {
			n++
		}
	}
	return n
}
