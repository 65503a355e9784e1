package config

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// ScenarioShape is a factor that changes over time. Which fields count depends
// on the kind.
type ScenarioShape struct {
	Kind      string        // step, flash, square, wave or ramp
	At        time.Duration // step, flash; of wave: its first peak; of square: when it is high first
	For       time.Duration // flash
	From, To  time.Duration // ramp
	Period    time.Duration // square, wave
	Factor    float64       // step, flash, ramp
	Low, High float64       // square
	Amplitude float64       // wave
}

// checkCalls refuses calls to nowhere and in circles.
func (r *scenarioReader) checkCalls(known map[string]int) {
	graph := map[string][]string{}
	for i := range r.calls {
		c := &r.calls[i]
		r.countCallers(c)
		if _, ok := known[c.call.Service]; !ok {
			c.at.Errorf("add that service to the file", "no service %s in this file", c.call.Service)
		}
		graph[c.from] = append(graph[c.from], c.call.Service)
	}
	refuseCycle(r.calls, graph)
}

func (r *scenarioReader) demand(v strict.Value) {
	items, ok := v.List()
	if ok && len(items) == 0 {
		v.Errorf("add the clients of a service", "is empty")
	}
	for _, item := range items {
		d := ScenarioDemand{Clients: defaultScenarioCount, Lie: 1}
		silentAt, liarsAt := item, item
		item.Object([]strict.Field{
			{Name: "service", Required: true, Read: func(v strict.Value) { d.Service = r.known(v) }},
			localityField("from", func(_ strict.Value, l isobar.Locality) { d.From = l }),
			{Name: "client", Read: func(v strict.Value) { d.Client = readClient(v) }},
			requiredFloat("rate", &d.Rate, demandRange),
			{Name: "shape", Read: func(v strict.Value) { d.Shape = readShapes(v) }},
			floatField("noise", &d.Noise, noiseRange),
			wholeField("clients", &d.Clients, clientCount),
			{Name: "kind", Read: func(v strict.Value) {
				kind, _ := v.Enum("envoy", "grpc")
				d.GRPC = kind == "grpc"
			}},
			{Name: "silent", Read: func(v strict.Value) { silentAt = v; wholeField("", &d.Silent, fewClients).Read(v) }},
			{Name: "liars", Read: func(v strict.Value) { liarsAt = v; wholeField("", &d.Liars, fewClients).Read(v) }},
			floatField("lie", &d.Lie, lieRange),
			spanField("lie_from", &d.LieFrom, 0, maxScenarioLength),
		})
		switch {
		case d.Silent > d.Clients:
			silentAt.Errorf("raise `clients`", "%d silent clients are more than all %d", d.Silent, d.Clients)
		case d.Silent+d.Liars > d.Clients:
			liarsAt.Errorf("raise `clients`", "%d silent and %d lying clients are more than all %d", d.Silent, d.Liars, d.Clients)
		}
		r.count(v, d.Clients, d.Service, "let fewer clients stand for them all")
		r.scenario.Demand = append(r.scenario.Demand, d)
	}
}

// readClient reads the name of a client service.
func readClient(v strict.Value) string {
	s, ok := v.Text()
	if ok && (s == "" || len(s) > maxClientName || !printable(s) || strings.Contains(s, "*")) {
		v.Errorf("write the node.cluster of these clients; `clients` is how many there are", "%q is not the name of a client service", s)
		return ""
	}
	return s
}

// maxClientName bounds the name of a client service, in bytes.
const maxClientName = 256

// simulatedCallers is how many streams at most stand for the instances of a
// calling service in a locality.
const simulatedCallers = 5

// countCallers counts the clients that a call makes.
func (r *scenarioReader) countCallers(c *placedCall) {
	clients := 0
	for _, n := range r.sizes[c.from] {
		clients += min(simulatedCallers, n)
	}
	r.count(c.at, clients, c.call.Service, "simulate a part of the fleet")
}

// count keeps the memory of a run within bounds: so many clients know all
// endpoints of a service.
func (r *scenarioReader) count(v strict.Value, clients int, service, fix string) {
	before, all := r.routes, 0
	for _, n := range r.sizes[service] {
		all += n
	}
	r.routes += float64(clients) * float64(all)
	if before <= maxScenarioRoutes && r.routes > maxScenarioRoutes {
		v.Errorf(fix, "too many pairs of clients and endpoints: more than %g", maxScenarioRoutes)
	}
}

// known reads the name of one of the file's services.
func (r *scenarioReader) known(v strict.Value) string {
	name, ok := v.Text()
	if ok && !slices.ContainsFunc(r.scenario.Services, func(s isobar.Service) bool { return s.Name == name }) {
		v.Errorf("name one of the services of this file", "no service %s in this file", name)
	}
	return name
}

func (r *scenarioReader) capacity(v strict.Value) {
	items, _ := v.List()
	for _, item := range items {
		c := ScenarioCapacity{Factor: 1}
		item.Object([]strict.Field{
			{Name: "service", Read: func(v strict.Value) { c.Service = r.known(v) }},
			localityField("locality", func(v strict.Value, l isobar.Locality) {
				c.Locality = l
				r.somewhere(v, c.Service, l)
			}),
			floatField("factor", &c.Factor, factorRange),
			{Name: "shape", Read: func(v strict.Value) { c.Shape = readShapes(v) }},
		})
		r.scenario.Capacity = append(r.scenario.Capacity, c)
	}
}

func (r *scenarioReader) outages(v strict.Value) {
	items, _ := v.List()
	for _, item := range items {
		o := ScenarioOutage{To: r.scenario.Length}
		item.Object([]strict.Field{
			{Name: "service", Read: func(v strict.Value) { o.Service = r.known(v) }},
			localityField("locality", func(v strict.Value, l isobar.Locality) {
				o.Locality = l
				r.somewhere(v, o.Service, l)
			}),
			floatField("share", &o.Share, outageRange),
			requiredSpan("from", &o.From, 0),
			spanField("to", &o.To, 0, maxScenarioLength),
			spanField("period", &o.Period, time.Second, maxScenarioLength),
			boolField("unnoticed", &o.Unnoticed),
		})
		if o.To < o.From {
			item.Errorf("let it end after it begins", "it ends at %v and begins at %v", o.To, o.From)
		}
		r.scenario.Outages = append(r.scenario.Outages, o)
	}
}

// somewhere warns of a place in which the service, or none, runs.
func (r *scenarioReader) somewhere(v strict.Value, service string, scope isobar.Locality) {
	for i := range r.scenario.Services {
		s := &r.scenario.Services[i]
		if service != "" && s.Name != service {
			continue
		}
		for j := range s.Localities {
			if lies(s.Localities[j].Locality, scope) {
				return
			}
		}
	}
	v.Warnf("check the name", "nothing runs in %s", scope)
}

// readShapes reads a list of shapes, each an object with its kind as the only
// field.
func readShapes(v strict.Value) []ScenarioShape {
	items, _ := v.List()
	var out []ScenarioShape
	for _, item := range items {
		var s ScenarioShape
		given := 0
		kind := func(name string, fields ...strict.Field) strict.Field {
			return strict.Field{Name: name, Read: func(v strict.Value) {
				given++
				s.Kind = name
				v.Object(fields)
			}}
		}
		at := requiredSpan("at", &s.At, 0)
		period := requiredSpan("period", &s.Period, time.Second)
		factor := requiredFloat("factor", &s.Factor, factorRange)
		item.Object([]strict.Field{
			kind("step", at, factor),
			kind("flash", at, requiredSpan("for", &s.For, time.Second), factor),
			kind("square", period, spanField("at", &s.At, 0, maxScenarioLength), requiredFloat("low", &s.Low, factorRange), requiredFloat("high", &s.High, factorRange)),
			kind("wave", append(renamed(map[string]string{"swing": "amplitude"}),
				period, spanField("peak", &s.At, 0, maxScenarioLength), requiredFloat("amplitude", &s.Amplitude, strict.Range{Max: 1}))...),
			kind("ramp", requiredSpan("from", &s.From, 0), requiredSpan("to", &s.To, 0), factor),
		})
		switch {
		case given != 1 && item.IsObject():
			item.Errorf("write one of step, flash, square, wave, ramp for each item", "%d kinds of shape in one item", given)
		case s.Kind == "ramp" && s.To <= s.From:
			item.Errorf("let it end after it begins", "the ramp ends at %v and begins at %v", s.To, s.From)
		case given == 1:
			out = append(out, s)
		}
	}
	return out
}
