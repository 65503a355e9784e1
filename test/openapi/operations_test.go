package openapi_test

import (
	"reflect"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
)

// operation is a route as the document has it.
type operation struct {
	method, path string
	summary      string
	query        map[string]string // name -> meaning
	body         any               // nil = none; text = what it is in words
	answers      []any             // one of these types; a string is a media type
	kept         bool              // 202 where no plan has the write yet
	ifMatch      bool
}

const (
	byService = "name of a service; without it the answer is about all of them"
	force     = "true: even if the remaining capacity can't carry the traffic"
	forceMark = force + "; where a group of replicas has no leader, it is kept for the next one"
	keepMark  = "true: if a group of replicas has no leader, it is stored for the next one"
	who       = "name of the operator, for the history; the address that the request comes from if missing"
	reason    = "reason, for the history and for other operators"
	health    = "/v1/services/{name}/endpoints/{address}/health"
)

var operations = []operation{
	{method: "GET", path: "/v1/services", summary: "Every service with its owner, its revision and the health that operators set", answers: []any{admin.ServiceList{}}},
	{
		method: "PUT", path: "/v1/services", summary: "Replaces all services of the API at once, or none", body: "a list of services, as JSON or YAML",
		query: map[string]string{"confirm": "digest of the body, if the answer asked for it", "force": force}, answers: []any{admin.Published{}}, kept: true,
	},
	{method: "GET", path: "/v1/services/{name}", summary: "One service, with its revision as the ETag", answers: []any{admin.ServiceObject{}}},
	{
		method: "PUT", path: "/v1/services/{name}", summary: "Creates or replaces a service of the API", body: "a service, as JSON or YAML",
		query: map[string]string{"force": force}, answers: []any{admin.Published{}}, kept: true, ifMatch: true,
	},
	{method: "DELETE", path: "/v1/services/{name}", summary: "Removes a service of the API", answers: []any{admin.Published{}}, kept: true, ifMatch: true},
	{method: "GET", path: "/v1/health", summary: "Every health that an operator set", answers: []any{admin.HealthList{}}},
	{method: "GET", path: health, summary: "The health of one endpoint", answers: []any{admin.EndpointHealth{}}},
	{
		method: "PUT", path: health, summary: "Sets the health of an endpoint", body: "healthy, unhealthy or draining",
		query: map[string]string{"force": forceMark, "who": who, "reason": reason}, answers: []any{admin.Published{}}, kept: true,
	},
	{
		method: "DELETE", path: health, summary: "Removes that setting",
		query: map[string]string{"force": keepMark, "who": who, "reason": reason}, answers: []any{admin.Published{}}, kept: true,
	},
	{method: "PUT", path: "/v1/services/{name}/health/release", summary: "Accepts a held mass failure", answers: []any{admin.Released{}}},
	{method: "GET", path: "/v1/plan", summary: "The published plan", query: map[string]string{"service": byService}, answers: []any{admin.PlanView{}}},
	{method: "POST", path: "/v1/plan", summary: "The effect of another configuration file", body: "a configuration file", answers: []any{admin.Previewed{}}},
	{method: "POST", path: "/v1/whatif", summary: "The effect of a change on the plan in force", body: plan.WhatIf{}, answers: []any{plan.Difference{}}},
	{
		method: "POST", path: "/v1/record", summary: "A trace of the decisions and their inputs",
		query: map[string]string{"for": "length, such as 10m"}, answers: []any{"application/x-isobar-trace"},
	},
	{
		method: "GET", path: "/v1/explain", summary: "The reasons for the weights of the clients of one locality",
		query: map[string]string{"service": "name of a service", "from": "locality of the clients; empty for clients without one"}, answers: []any{plan.Explanation{}},
	},
	{method: "GET", path: "/v1/capacity", summary: "Declared and estimated capacities", query: map[string]string{"service": "name of a service"}, answers: []any{admin.CapacityList{}}},
	{method: "GET", path: "/v1/clients", summary: "Every connected client", query: map[string]string{"service": "only clients that subscribe to this service"}, answers: []any{admin.ClientList{}}},
	{method: "GET", path: "/v1/verdicts", summary: "Health verdicts, and the connected checkers", query: map[string]string{"service": byService}, answers: []any{admin.VerdictList{}}},
	{method: "GET", path: "/v1/checkers", summary: "The connected checkers, and paths on which their probes fail", answers: []any{admin.CheckerList{}}},
	{method: "GET", path: "/v1/access", summary: "Rights of the caller at this interface", answers: []any{admin.Access{}}},
	{method: "GET", path: "/v1/status", summary: "The state of the server, and what needs attention", query: map[string]string{"service": "name of a service; ok and attention are about it"}, answers: []any{admin.Status{}}},
	{method: "GET", path: "/v1/overview", summary: "The state, and a line for each service", answers: []any{admin.Overview{}}},
	{
		method: "GET", path: "/v1/flows", summary: "Flows of all services between regions, or zones of regions",
		query: map[string]string{"from": "region of the clients", "to": "region of the endpoints"}, answers: []any{admin.FlowList{}},
	},
	{method: "GET", path: "/v1/stream", summary: "Lines of JSON at each change", query: map[string]string{"service": byService}, answers: []any{"application/x-ndjson"}},
	{
		method: "GET", path: "/v1/samples", summary: "Values from the plans of the last hour or day",
		query: map[string]string{"service": byService, "span": "hour or day"}, answers: []any{admin.SampleSeries{}},
	},
	{method: "GET", path: "/v1/marks", summary: "The moments that charts mark, oldest first", answers: []any{admin.MarkList{}}},
	{method: "POST", path: "/v1/marks", summary: "Marks a moment in charts", body: admin.MarkRequest{}, answers: []any{admin.SampleMark{}}},
	{
		method: "GET", path: "/v1/history", summary: "The last changes of the plan, newest first",
		query:   map[string]string{"service": byService, "brief": "true answers one line for each change", "version": "only the change of this version"},
		answers: []any{admin.ChangeList{}, admin.ChangeMarks{}},
	},
	{
		method: "GET", path: "/v1/history/timeline", summary: "The amount of change over the last hour or day",
		query: map[string]string{"service": byService, "span": "hour or day"}, answers: []any{admin.Timeline{}},
	},
	{
		method: "GET", path: "/v1/history/moment", summary: "The last change before a moment, and the shares of a service at that moment",
		query: map[string]string{"service": "name of a service; without it the answer has no shares", "at": "time, as in RFC 3339; without it now"}, answers: []any{admin.Moment{}},
	},
	{
		method: "GET", path: "/v1/history/span", summary: "The changes between two moments, largest first",
		query: map[string]string{"service": byService, "from": "time, as in RFC 3339", "to": "time after it"}, answers: []any{admin.Span{}},
	},
	{
		method: "GET", path: "/v1/history/net", summary: "The net effect of the changes between two moments, largest first",
		query: map[string]string{"service": byService, "from": "time, as in RFC 3339", "to": "time after it"}, answers: []any{admin.NetChange{}},
	},
	{
		method: "POST", path: "/v1/drain", summary: "Drains endpoints", body: admin.DrainRequest{},
		query: map[string]string{"force": forceMark}, answers: []any{admin.Drained{}}, kept: true, ifMatch: true,
	},
	{
		method: "POST", path: "/v1/undrain", summary: "Ends drains", body: admin.DrainRequest{},
		query: map[string]string{"force": keepMark}, answers: []any{admin.Drained{}}, kept: true, ifMatch: true,
	},
	{method: "POST", path: "/v1/pause", summary: "Freezes weights", body: admin.OperatorRequest{}, answers: []any{admin.Operated{}}, ifMatch: true},
	{method: "POST", path: "/v1/resume", summary: "Ends a pause", body: admin.OperatorRequest{}, answers: []any{admin.Operated{}}, ifMatch: true},
	{method: "POST", path: "/v1/rollback", summary: "Returns to the weights of an earlier version, and pauses", body: admin.OperatorRequest{}, answers: []any{admin.Operated{}}, ifMatch: true},
	{method: "POST", path: "/v1/reload", summary: "Reads the configuration file again", body: admin.OperatorRequest{}, answers: []any{admin.Reloaded{}}},
	{method: "GET", path: "/v1/replicas", summary: "State of the group of replicas", answers: []any{admin.ReplicaGroup{}}},
	{method: "POST", path: "/v1/replicas/accept-config", summary: "Puts the leader's configuration in force without a majority", body: admin.AcceptConfigRequest{}, answers: []any{admin.AcceptedConfig{}}},
	{method: "POST", path: "/v1/replicas/step-down", summary: "Has the leader of the group give up leadership", body: admin.OperatorRequest{}, answers: []any{admin.SteppedDown{}}},
	{method: "GET", path: "/v1/discovery/xds", summary: "State of another control plane", answers: []any{map[string]any{}}},
	{method: "GET", path: "/v1/discovery/dns", summary: "State of names that DNS resolves", answers: []any{map[string]any{}}},
	{method: "GET", path: "/v1/discovery/kubernetes", summary: "State of the endpoints of a Kubernetes cluster", answers: []any{map[string]any{}}},
}

// typeOf returns the type of an answer, or false for a media type.
func typeOf(answer any) (reflect.Type, bool) {
	if _, media := answer.(string); media {
		return nil, false
	}
	return reflect.TypeOf(answer), true
}
