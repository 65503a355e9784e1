package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// DeviationSeen reports that clients of the source do not follow their shares.
type DeviationSeen struct {
	Points float64 `json:"points"` // largest difference of a share, percent
	Cause  string  `json:"cause"`
	// ClientsOnly reports that only single clients deviate, while the source as a whole does not, or
	// its shares change too fast to decide. Points is then that of the largest deviation.
	ClientsOnly bool `json:"clients_only,omitempty"`
	// Clients are those that stand out, the largest deviation first: at most five; Others counts the
	// rest. None stands out if all deviate a little.
	Clients []DeviatingClient `json:"clients,omitempty"`
	Others  int               `json:"others,omitempty"`
}

// DeviatingClient is a client whose own reports deviate from the shares of its source.
type DeviatingClient struct {
	Node    string  `json:"node"`    // node.id
	Cluster string  `json:"cluster"` // node.cluster
	Rate    float64 `json:"rate"`    // requests/s
	Points  float64 `json:"points"`  // smallest difference of a share from the published ones, percent

	To      isobar.Locality `json:"to"`       // that gets most of its requests
	ToShare float64         `json:"to_share"` // of its requests, 0 to 1
}

// DeviationsOf is what operators see of the deviations of a service, sorted by source.
func DeviationsOf(f *load.Deviations) []SourceDeviation {
	var out []SourceDeviation
	for _, d := range f.Deviating {
		out = append(out, SourceDeviation{Source: d.Source, DeviationSeen: *seenOfDeviation(&d)})
	}
	for _, d := range f.Individual {
		seen := seenOfDeviation(&d)
		seen.ClientsOnly = true
		out = append(out, SourceDeviation{Source: d.Source, DeviationSeen: *seen})
	}
	slices.SortFunc(out, func(a, b SourceDeviation) int { return a.Source.Compare(b.Source) })
	return out
}

// SourceDeviation is a deviation with the client locality that it is of.
type SourceDeviation struct {
	DeviationSeen

	Source isobar.Locality
}

func seenOfDeviation(d *load.Deviation) *DeviationSeen {
	out := &DeviationSeen{Points: d.Points, Cause: d.Cause, Others: d.Others}
	for _, c := range d.Clients {
		out.Clients = append(out.Clients, DeviatingClient(c))
	}
	return out
}

// String says who does not follow the shares of a source, and by how much.
func (d *DeviationSeen) String() string {
	why := "likely cause: " + d.Cause
	switch len(d.Clients) + d.Others {
	case 0:
		return fmt.Sprintf("clients do not follow their weights: %s of their requests go elsewhere than planned; no single client stands out; %s",
			atLeast(d.Points), why)
	case 1:
		c := &d.Clients[0]
		out := fmt.Sprintf("client %q (%s) does not follow its weights: %s of its requests go elsewhere than planned", c.Node, c.Cluster, atLeast(c.Points))
		if c.ToShare > 0 {
			out += fmt.Sprintf("; it sends %.0f%% to %s", 100*c.ToShare, placeName(c.To))
		}
		if d.Cause != load.CauseUnknown {
			out += "; " + why
		}
		return out
	}
	names := make([]string, len(d.Clients))
	for i := range d.Clients {
		names[i] = fmt.Sprintf("%q (%s)", d.Clients[i].Node, d.Clients[i].Cluster)
	}
	who := strings.Join(names, ", ")
	if d.Others > 0 {
		who += fmt.Sprintf(" and %d more", d.Others)
	}
	if d.ClientsOnly {
		return fmt.Sprintf("clients %s do not follow their weights: %s of the requests of the first go elsewhere than planned", who, atLeast(d.Clients[0].Points))
	}
	return fmt.Sprintf("clients %s do not follow their weights: %s of the requests of their locality go elsewhere than planned; %s", who, atLeast(d.Points), why)
}

// atLeast returns the least percentage of requests that go elsewhere, if one share
// differs by so many points.
func atLeast(points float64) string {
	if points >= 99.5 {
		return "all"
	}
	return fmt.Sprintf("at least %.0f%%", points)
}
