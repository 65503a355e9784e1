package interop

import (
	"slices"
	"strings"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// The columns of the table.
const (
	demand       = "load reports"
	weights      = "weights"
	drops        = "drops"
	failover     = "failover"
	healthFilter = "health"
	orcaWeights  = "ORCA"
	outOfBand    = "ORCA out of band"
	nack         = "NACK"
	restart      = "restart"
	keeps        = "keeps"
	takesBack    = "takes back"
	many         = "20 services"
	overTLS      = "TLS"
	serves       = "xDS server"
)

var columns = []string{demand, weights, drops, failover, healthFilter, orcaWeights, outOfBand, nack, restart, keeps, takesBack, many, overTLS, serves}

// meanings of the columns, for the foot of the table.
var meanings = map[string]string{
	demand:       "LRS reports become the demand that decides",
	weights:      "calls are distributed over zones in the assigned shares",
	drops:        "the client drops the assigned fraction, and dropped calls count as demand, once",
	failover:     "lower tiers take over in order when zones fail, and the first tier gets its calls again when it returns",
	healthFilter: "drained and unhealthy endpoints get no calls; a tool that makes no calls receives their health",
	orcaWeights:  "calls of a service with `orca: true` reach all its endpoints; Isobar learns their capacity from the reports of Envoys",
	outOfBand:    "with `orca: {out_of_band: 1s}`, an endpoint that reports a higher utilization on its own stream gets fewer calls",
	nack:         "`/v1/clients` has the text of a NACK, the client keeps its last accepted resource, and Isobar does not send the refused one again in a loop",
	restart:      "no call fails while the server is killed, is down (60 s in `make interop-all`) and restarts, and the client follows the new process",
	keeps:        "no call fails while a service is removed for 12 s and returns, with `ignore_resource_deletion` from `isobar bootstrap grpc`",
	takesBack:    "without `ignore_resource_deletion`, calls fail while the service is removed, and succeed within 3 s of its return",
	many:         "one client calls 20 services: all calls succeed, and it reports the load of each",
	overTLS:      "discovery and load reports over TLS, with a client certificate, which the server requires, set up as the how-to guides describe",
	serves:       "a gRPC server of the same library starts with the listener from `isobar bootstrap grpc --server-listeners`, and answers calls, in plaintext and with mutual TLS",
}

// pageClient is a client of the page.
type pageClient struct {
	name string
	all  bool // seen by `make interop-all` only
}

// The names of clients that have no kind.
const (
	name2017      = "client of 2017 (ours)"
	nameGrpcurl   = "grpcurl"
	nameCurl3     = "curl (v3)"
	nameCurl2     = "curl (v2)"
	contourStream = "contour CLI, stream"
	contourDelta  = "contour CLI, delta"
)

// clients are the rows of the page.
var clients = func() (out []pageClient) {
	for _, protocol := range []string{adsDelta, adsStream, edsBeside, restPolls} {
		out = append(out, pageClient{envoyName(envoy.Oldest, protocol), protocol != adsStream})
	}
	for _, protocol := range []string{adsDelta, adsStream, edsBeside, restPolls} {
		out = append(out, pageClient{name: envoyName(envoy.Newest, protocol)})
	}
	for _, k := range kinds {
		out = append(out, pageClient{name: k.name})
	}
	for _, name := range tools {
		out = append(out, pageClient{name: name})
	}
	return out
}()

// tools make no calls by what they are told.
var tools = []string{name2017, contourDelta, contourStream, nameCurl2, nameCurl3, nameGrpcurl}

func listedClient(name string) *pageClient {
	if i := slices.IndexFunc(clients, func(c pageClient) bool { return c.name == name }); i >= 0 {
		return &clients[i]
	}
	return nil
}

// Short forms of reasons.
const (
	cannot   = "no"  // the client can't do it
	notApply = "n/a" // there is nothing that it could do
)

// reason says why a cell has no test.
type reason struct {
	short, text string
	clients     func(client string) bool
	columns     []string
}

func (r *reason) holds(client, column string) bool {
	return slices.Contains(r.columns, column) && r.clients(client)
}

func named(names ...string) func(string) bool {
	return func(client string) bool { return slices.Contains(names, client) }
}

func isEnvoy(client string) bool { return strings.HasPrefix(client, "Envoy ") }

func anyOf(all ...func(string) bool) func(string) bool {
	return func(client string) bool {
		return slices.ContainsFunc(all, func(f func(string) bool) bool { return f(client) })
	}
}

// The programs of gRPC's own tests.
const (
	interopClient   = "gRPC interop client"
	interopClientV2 = "gRPC interop client (v2)"
)

// reasons are numbered on the page in this order.
var reasons = []reason{
	{notApply, "it makes no calls to endpoints.", named(tools...), []string{weights, failover, orcaWeights, outOfBand, restart, keeps, takesBack, many}},
	{notApply, "it makes no calls, so it drops none.", named(contourDelta, contourStream, nameCurl2, nameCurl3, nameGrpcurl), []string{drops}},
	{notApply, "it has no load reports.", named(contourDelta, contourStream, nameCurl2, nameCurl3), []string{demand}},
	{notApply, "it is not a library for gRPC servers.", anyOf(isEnvoy, named(tools...)), []string{serves}},
	{notApply, "it is a client program; the row grpc-go has the servers of its library.", named(interopClient, interopClientV2), []string{serves}},
	{notApply, "it is a program with one target.", named(interopClient, interopClientV2), []string{many}},
	{cannot, "it has no `ignore_resource_deletion`: requests to a removed service fail.", anyOf(isEnvoy, named(interopClientV2)), []string{keeps}},
	{cannot, "a poll has no field for a NACK.", anyOf(func(c string) bool { return isEnvoy(c) && strings.HasSuffix(c, restPolls) }, named(nameCurl2, nameCurl3)), []string{nack}},
	{cannot, "EDS of 2017 has no field for the text of a NACK.", named(name2017), []string{nack}},
	{cannot, "it has `client_side_weighted_round_robin` only if `GRPC_EXPERIMENTAL_XDS_WRR_LB` is set; otherwise it distributes calls evenly.", named("grpc-js"), []string{outOfBand}},
	{cannot, "it has no `client_side_weighted_round_robin`, and distributes calls evenly.", named("gRPC C++", "gRPC Python", interopClientV2), []string{outOfBand}},
	{cannot, "Envoy 1.36 does not use reports out of band.", func(c string) bool { return strings.HasPrefix(c, "Envoy 1.36") }, []string{outOfBand}},
	{notApply, "its clusters come from its bootstrap file or from another control plane, which set the weights of endpoints.", func(c string) bool {
		return isEnvoy(c) && (strings.HasSuffix(c, restPolls) || strings.HasSuffix(c, edsBeside))
	}, []string{outOfBand}},
	{notApply, "it is part of the tests, and uses plaintext only.", named(name2017), []string{overTLS}},
}

// excused reports whether there is a reason for a cell without a test.
func excused(client, column string) bool {
	return slices.ContainsFunc(reasons, func(r reason) bool { return r.holds(client, column) })
}
