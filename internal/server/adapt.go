package server

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/xds"
)

// parser reads the objects of the admin API as the configuration file has
// them.
type parser struct {
	defaults func() config.Defaults
}

// ParseService implements admin.Parser.
func (p parser) ParseService(name string, body []byte) (isobar.Service, []admin.Problem, error) {
	s, warnings, err := config.DecodeService(name, body, p.defaults())
	return s, problems(warnings), inputError(err)
}

// ParseServices implements admin.Parser.
func (p parser) ParseServices(body []byte) ([]isobar.Service, []admin.Problem, error) {
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

// clients joins what both stream layers know, for operators. A load report
// stream belongs to the discovery stream of the same node, else it stands
// alone.
func (s *Server) clients() []admin.Client {
	reports := map[string]lrs.Client{}
	for _, c := range s.lrs.Clients() {
		reports[clientKey(c.Node.ID, c.Node.Locality)] = c
	}
	now := time.Now()
	var out []admin.Client
	for _, c := range s.xds.Clients() {
		key := clientKey(c.Node, c.Locality)
		a := discoveryClient(c, now)
		if r, ok := reports[key]; ok {
			a.LRS = reportInfo(r)
			delete(reports, key)
		}
		out = append(out, a)
	}
	for _, r := range reports {
		out = append(out, admin.Client{
			ID: r.Node.ID, Cluster: r.Node.Cluster, Locality: r.Node.Locality.String(), Agent: r.UserAgent,
			Peer: r.Address, ConnectedSince: r.Since, InSync: true, LRS: reportInfo(r), Types: map[string]admin.ClientType{},
		})
	}
	slices.SortFunc(out, func(a, b admin.Client) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Locality, b.Locality), cmp.Compare(a.Peer, b.Peer), a.ConnectedSince.Compare(b.ConnectedSince))
	})
	return out
}

func clientKey(id string, l isobar.Locality) string { return id + "\x00" + l.String() }

func discoveryClient(c xds.Client, now time.Time) admin.Client {
	a := admin.Client{
		ID: c.Node, Cluster: c.Cluster, Locality: c.Locality.String(), Agent: c.Agent, Peer: c.Peer,
		ConnectedSince: c.Connected, InSync: c.InSync, Types: make(map[string]admin.ClientType, len(c.Types)),
	}
	for _, t := range c.Types {
		ct := admin.ClientType{Subscribed: t.Subscribed, SentVersion: t.Sent, AckedVersion: t.Acked}
		if t.Wildcard {
			ct.Subscribed = -1
		}
		since := t.AckedAt
		if since.IsZero() {
			since = t.SentAt
		}
		if !since.IsZero() {
			ct.AgeSeconds = math.Round(now.Sub(since).Seconds()*1000) / 1000
		}
		if t.LastNack != nil {
			ct.NACK = &admin.NACK{Version: t.LastNack.Version, Text: t.LastNack.Text, At: t.LastNack.At}
		}
		a.Types[t.Type] = ct
	}
	return a
}

func reportInfo(r lrs.Client) *admin.ClientLRS {
	return &admin.ClientLRS{LastReport: r.LastReport, Rejected: r.Rejected, Reason: r.LastReason}
}
