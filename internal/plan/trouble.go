package plan

import "github.com/isobar-xds/isobar"

// TroubleKind says what is wrong with a service.
type TroubleKind string

// The kinds of troubles that a plan knows of.
const (
	TroubleFailing      TroubleKind = "requests_failing"        // more than 1% of the requests of the service fail
	TroubleSource       TroubleKind = "source_failing"          // nothing of one source gets through
	TroubleSite         TroubleKind = "locality_failing"        // all requests to a locality fail
	TroubleSitePartly   TroubleKind = "locality_failing_partly" // many requests to a locality fail, though few of the whole service
	TroubleEndpoint     TroubleKind = "endpoint_failing"        // an endpoint fails far more than others of its locality
	TroubleUnreachable  TroubleKind = "locality_unreachable"    // no source reaches a locality
	TroubleReturning    TroubleKind = "locality_returning"      // a locality works again and gets its share back in parts
	TroubleContradicted TroubleKind = "capacity_contradicted"   // requests tell another capacity than the declared one
	TroubleLimit        TroubleKind = "limit_without_effect"    // a limit does not do what it is there for
)

// Trouble is one thing about a service that an operator should know of.
type Trouble struct {
	Kind     TroubleKind
	Locality isobar.Locality // of clients with TroubleSource, else of endpoints; zero = the whole service
	Text     string          // a sentence that does not name the service
}

// Texts lists the sentences of troubles.
func Texts(troubles []Trouble) []string {
	var out []string
	for i := range troubles {
		out = append(out, troubles[i].Text)
	}
	return out
}
