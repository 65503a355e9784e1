package discovery

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// savedFormat is the version of saved; a newer one is refused.
const savedFormat = 1

// saved is contents as they are kept: without the file, which keeps itself.
type saved struct {
	Format    int             `json:"format"`
	Revision  uint64          `json:"revision"`
	Objects   []savedObject   `json:"objects"` // sorted by name
	Overrides []savedOverride `json:"health"`
}

type savedObject struct {
	Service  isobar.Service `json:"service"`
	Revision uint64         `json:"revision"`
}

type savedOverride struct {
	health.Override

	// Earlier versions did not save these.
	Since  time.Time `json:"since,omitzero"`
	Who    string    `json:"who,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// ErrNewerFormat says that a newer Isobar wrote the objects.
var ErrNewerFormat = errors.New("the saved services were written by a newer version")

// encodings are the API's objects as they were saved last, by name: one change
// must not cost encoding all of them.
type encodings map[string]encoding

type encoding struct {
	revision uint64 // of the object
	data     []byte
}

// encode returns what is to be saved, in the memory of into. Objects that did not
// change since they were encoded are taken from there; the result has the
// encodings of all.
func (c contents) encode(known encodings, into []byte) ([]byte, encodings, error) {
	s := saved{Format: savedFormat, Revision: c.revision, Objects: []savedObject{}}
	for _, o := range c.health.Overrides() {
		by := c.origins[o.Key]
		s.Overrides = append(s.Overrides, savedOverride{Override: o, Since: by.since, Who: by.who, Reason: by.reason})
	}
	rest, err := json.Marshal(s)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the services can't be saved: %w", isobar.ErrInvalid, err)
	}
	next := make(encodings, len(c.api))
	size := len(rest)
	objects := c.objects()
	for i := range objects {
		o := objects[i]
		if o.Owner != isobar.OwnerAPI {
			continue
		}
		e, ok := known[o.Service.Name]
		if !ok || e.revision != o.Revision {
			e.revision = o.Revision
			if e.data, err = json.Marshal(savedObject{Service: o.Service, Revision: o.Revision}); err != nil {
				return nil, nil, fmt.Errorf("%w: service %q can't be saved: %w", isobar.ErrInvalid, o.Service.Name, err)
			}
		}
		next[o.Service.Name] = e
		size += len(e.data) + 1
	}
	return joined(rest, objects, next, slices.Grow(into[:0], size)), next, nil
}

// joined puts the encoded objects into what was encoded without them.
func joined(rest []byte, objects []*isobar.Object, encoded encodings, into []byte) []byte {
	// The empty list is the first of its kind there.
	head, tail, _ := bytes.Cut(rest, noObjects)
	into = append(into, head...)
	into = append(into, noObjects[:len(noObjects)-1]...)
	separate := false
	for i := range objects {
		if objects[i].Owner != isobar.OwnerAPI {
			continue
		}
		if separate {
			into = append(into, ',')
		}
		separate = true
		into = append(into, encoded[objects[i].Service.Name].data...)
	}
	into = append(into, ']')
	return append(into, tail...)
}

// noObjects is how saved is encoded where it has none.
var noObjects = []byte(`"objects":[]`)

func decode(data []byte) (contents, error) {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return contents{}, fmt.Errorf("the saved services can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return contents{}, fmt.Errorf("%w (format %d, this one reads up to %d)", ErrNewerFormat, s.Format, savedFormat)
	}
	if err := s.readFormerNames(data); err != nil {
		return contents{}, err
	}
	c := contents{revision: s.Revision, origins: origins{}, api: make(map[string]*isobar.Object, len(s.Objects))}
	for _, o := range s.Overrides {
		c.health = c.health.With(o.Override)
		c.origins[o.Key] = origin{since: o.Since, who: o.Who, reason: o.Reason}
	}
	for _, o := range s.Objects {
		c.api[o.Service.Name] = &isobar.Object{Service: cloneService(o.Service), Owner: isobar.OwnerAPI, Revision: o.Revision}
	}
	return c, nil
}

// readFormerNames takes over what was saved under former names of fields.
func (s *saved) readFormerNames(data []byte) error {
	if !bytes.Contains(data, []byte(`"background":`)) && !bytes.Contains(data, []byte(`"scaler":`)) {
		return nil
	}
	var former struct {
		Objects []struct {
			Service struct {
				Localities []struct {
					Background float64 `json:"background"`
					Scaler     float64 `json:"scaler"`
				} `json:"localities"`
			} `json:"service"`
		} `json:"objects"`
	}
	if err := json.Unmarshal(data, &former); err != nil {
		return fmt.Errorf("the saved services can't be read: %w", err)
	}
	for i := range former.Objects {
		for k, l := range former.Objects[i].Service.Localities {
			now := &s.Objects[i].Service.Localities[k]
			now.UnmanagedLoad = cmp.Or(now.UnmanagedLoad, l.Background)
			now.CapacityScaler = cmp.Or(now.CapacityScaler, l.Scaler)
		}
	}
	return nil
}

// Services are cloned on their way in and out, so that nobody outside holds
// what is part of a topology.

func cloneServices(services []isobar.Service) []isobar.Service {
	out := make([]isobar.Service, len(services))
	for i := range services {
		out[i] = cloneService(services[i])
	}
	return out
}

// cloneService also brings the service into its normal form: localities
// sorted, and lists that are empty rather than nil or the other way round.
func cloneService(s isobar.Service) isobar.Service {
	localities := make([]isobar.ServiceLocality, len(s.Localities))
	copy(localities, s.Localities)
	for i := range localities {
		endpoints := make([]isobar.Endpoint, len(localities[i].Endpoints))
		copy(endpoints, localities[i].Endpoints)
		localities[i].Endpoints = endpoints
	}
	slices.SortStableFunc(localities, func(a, b isobar.ServiceLocality) int { return a.Locality.Compare(b.Locality) })
	s.Localities = localities
	if len(s.Calls) == 0 {
		s.Calls = nil
	}
	s.Calls = slices.Clone(s.Calls)
	return s
}

func cloneObject(o *isobar.Object) isobar.Object {
	out := *o
	out.Service = cloneService(o.Service)
	return out
}
