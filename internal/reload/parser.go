package reload

import (
	"errors"
	"sync"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
)

// Parser reads the objects of the admin API as the configuration file has them. It
// implements [admin.Parser].
type Parser struct {
	settings *Settings
	large    sync.Mutex // held while a body of more than largeBody is read
}

// NewParser returns a parser that fills in the defaults of the file in force.
func NewParser(settings *Settings) *Parser { return &Parser{settings: settings} }

// largeBody is from when on bodies are read one after the other: it takes memory
// of a hundred times their size.
const largeBody = 1 << 20

func (p *Parser) enter(body []byte) (leave func()) {
	if len(body) <= largeBody {
		return func() {}
	}
	p.large.Lock()
	return p.large.Unlock
}

// ParseService implements [admin.Parser].
func (p *Parser) ParseService(name string, body []byte) (isobar.Service, []admin.Problem, error) {
	defer p.enter(body)()
	s, warnings, err := config.DecodeService(name, body, p.settings.defaults())
	return s, problems(warnings), inputError(err)
}

// ParseServices implements [admin.Parser].
func (p *Parser) ParseServices(body []byte) ([]isobar.Service, []admin.Problem, error) {
	defer p.enter(body)()
	s, warnings, err := config.DecodeServices(body, p.settings.defaults())
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
