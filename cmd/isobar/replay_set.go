package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
)

// setting changes one field of a service.
type setting struct {
	text    string
	service string // empty: every service
	apply   func(s *isobar.Service)
	met     bool // a service that it is for was in the trace, or in the file of -c
}

// settable are the keys of --set; bounds are those of the configuration file.
var settable = map[string]func(text string) (func(*isobar.Service), error){
	"policy": func(text string) (func(*isobar.Service), error) {
		p, err := isobar.ParsePolicy(text)
		return func(s *isobar.Service) { s.Policy = p }, err
	},
	"mode": func(text string) (func(*isobar.Service), error) {
		m, err := isobar.ParseMode(text)
		return func(s *isobar.Service) { s.Mode = m }, err
	},
	"max_shift": maxShift,
	"max_shed":  numeric(0, 0.99, func(s *isobar.Service, v float64) { s.MaxShed = v }),
	"ceiling": numeric(0.01, 1, func(s *isobar.Service, v float64) {
		eachLocality(s, func(l *isobar.ServiceLocality) { l.Ceiling = v })
	}),
	"capacity_scaler": numeric(0.01, 100, func(s *isobar.Service, v float64) {
		eachLocality(s, func(l *isobar.ServiceLocality) { l.CapacityScaler = v })
	}),
	"failover_threshold": numeric(0.01, 1, func(s *isobar.Service, v float64) { s.FailoverThreshold = v }),
}

func numeric(lo, hi float64, apply func(*isobar.Service, float64)) func(string) (func(*isobar.Service), error) {
	return func(text string) (func(*isobar.Service), error) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= lo && v <= hi) {
			return nil, fmt.Errorf("%q: want a number from %v to %v", text, lo, hi)
		}
		return func(s *isobar.Service) { apply(s, v) }, nil
	}
}

// maxShift refuses 0: in a service that stands for the default.
func maxShift(text string) (func(*isobar.Service), error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 100) {
		return nil, fmt.Errorf("%q: want a number above 0 and of at most 100: mode=observe moves nothing", text)
	}
	return func(s *isobar.Service) { s.MaxShift = v }, nil
}

// eachLocality changes the localities of a copy of the service, which shares
// them with the original.
func eachLocality(s *isobar.Service, apply func(*isobar.ServiceLocality)) {
	s.Localities = slices.Clone(s.Localities)
	for i := range s.Localities {
		apply(&s.Localities[i])
	}
}

func parseSetting(text string) (setting, error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return setting{}, fmt.Errorf("--set %q: want KEY=VALUE or SERVICE:KEY=VALUE", text)
	}
	out := setting{text: text}
	if i := strings.LastIndexByte(key, ':'); i >= 0 {
		out.service, key = key[:i], key[i+1:]
	}
	parse, ok := settable[key]
	if !ok {
		return out, fmt.Errorf("--set %q: unknown key %q; want one of %s", text, key, strings.Join(settableKeys(), ", "))
	}
	var err error
	if out.apply, err = parse(value); err != nil {
		return out, fmt.Errorf("--set %q: %w", text, err)
	}
	return out, nil
}

func settableKeys() []string {
	var out []string
	for key := range settable {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// change returns what -c and --set make of a recorded topology; nil where neither
// is given.
func (f *replayFlags) change(stdin io.Reader, stderr io.Writer) (*otherSide, error) {
	if f.config == "" && len(f.set) == 0 {
		return &otherSide{}, nil
	}
	var file *config.Config
	if f.config != "" {
		data, err := readInput(f.config, stdin)
		if err != nil {
			return nil, err
		}
		decoded, warnings, err := config.Decode(inputName(f.config), data)
		printWarnings(stderr, warnings)
		if err != nil {
			return nil, err
		}
		file = decoded
	}
	settings := make([]*setting, 0, len(f.set))
	for _, text := range f.set {
		s, err := parseSetting(text)
		if err != nil {
			return nil, usageError{errors.New(err.Error())}
		}
		settings = append(settings, &s)
	}
	return &otherSide{
		settings: settings,
		change:   func(t *isobar.Topology) *isobar.Topology { return changed(t, file, settings) },
	}, nil
}

// otherSide is what a trace is decided under as well.
type otherSide struct {
	change   topologyChange // nil: nothing is changed
	settings []*setting
}

// unmet is an error where a setting is for a service that never was there: what
// it was to change would look as if it made no difference.
func (o *otherSide) unmet() error {
	for _, s := range o.settings {
		if s.service != "" && !s.met {
			return fmt.Errorf("--set %q: the trace has no service %q: write its name as `isobar explain` does, or leave it out to set it for all", s.text, s.service)
		}
	}
	return nil
}

// changed replaces the recorded services with those of a file, adds
// those that are new, and changes settings.
func changed(t *isobar.Topology, file *config.Config, settings []*setting) *isobar.Topology {
	out := *t
	out.Services = slices.Clone(t.Services)
	if file != nil {
		out = *out.With(file.Services)
		for i := range file.Services {
			if _, ok := t.Service(file.Services[i].Name); !ok {
				out.Services = append(out.Services, file.Services[i])
			}
		}
		slices.SortStableFunc(out.Services, func(a, b isobar.Service) int { return strings.Compare(a.Name, b.Name) })
		if file.Network != nil {
			out.Network = file.Network
		}
	}
	for i := range out.Services {
		for _, s := range settings {
			if s.service == "" || s.service == out.Services[i].Name {
				s.apply(&out.Services[i])
				s.met = true
			}
		}
	}
	return &out
}
