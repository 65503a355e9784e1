package server

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/discovery"
)

// parser reads the objects of the admin API as the configuration file has
// them.
type parser struct {
	defaults func() config.Defaults
	large    *sync.Mutex // held while a body of more than largeBody is read
}

// largeBody is from when on bodies are read one after the other: it takes memory
// of a hundred times their size.
const largeBody = 1 << 20

func (p parser) enter(body []byte) (leave func()) {
	if len(body) <= largeBody {
		return func() {}
	}
	p.large.Lock()
	return p.large.Unlock
}

// ParseService implements admin.Parser.
func (p parser) ParseService(name string, body []byte) (isobar.Service, []admin.Problem, error) {
	defer p.enter(body)()
	s, warnings, err := config.DecodeService(name, body, p.defaults())
	return s, problems(warnings), inputError(err)
}

// ParseServices implements admin.Parser.
func (p parser) ParseServices(body []byte) ([]isobar.Service, []admin.Problem, error) {
	defer p.enter(body)()
	s, warnings, err := config.DecodeServices(body, p.defaults())
	return s, problems(warnings), inputError(err)
}

// inputError carries the places of a refused body over to the API.
func inputError(err error) error {
	if bad, ok := errors.AsType[*config.Error](err); ok {
		return &admin.InputError{Problems: problems(bad.Problems)}
	}
	return err
}

func problems(in []config.Problem) []admin.Problem {
	out := make([]admin.Problem, len(in))
	for i, p := range in {
		out[i] = admin.Problem{Error: p.Text, Place: p.Place(), Fix: p.Hint}
	}
	return out
}

// maxOverridesTold bounds how many overrides one line of the log names.
const maxOverridesTold = 20

// tellOverrides logs at the start what operators set before: it is in force
// again, and can't be seen in the configuration.
func tellOverrides(registry *discovery.Registry, log *slog.Logger) {
	all := registry.Overrides()
	if len(all) == 0 {
		return
	}
	var told []string
	for i, o := range all {
		if i == maxOverridesTold {
			told = append(told, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		told = append(told, fmt.Sprintf("%s %s %s", o.Service, o.Address, o.Status))
	}
	log.Warn("health set by operators is in force; GET /v1/health of the admin interface lists it", "overrides", told)
}
