package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Severity says how soon an operator should look.
type Severity string

// The severities, the most urgent first.
const (
	Critical Severity = "critical" // requests fail, or state or safety is lost
	Warning  Severity = "warning"  // something does not do what it should
	Notice   Severity = "notice"   // worth knowing; by itself nothing needs attention
)

func (s Severity) rank() int {
	switch s {
	case Critical:
		return 0
	case Warning:
		return 1
	case Notice:
	}
	return 2
}

// Attention is one thing that needs an operator's attention.
type Attention struct {
	Code     Code            `json:"code"`
	Severity Severity        `json:"severity"`
	Service  string          `json:"service,omitempty"`
	Locality isobar.Locality `json:"locality,omitzero"` // of endpoints, or of clients
	Client   string          `json:"client,omitempty"`  // node id of a client, id of a checker
	Text     string          `json:"text"`              // a sentence that names all of these
	Next     string          `json:"next,omitempty"`    // a command that shows more, or fixes it
}

// Code names a kind of Attention. Codes are stable.
type Code string

// The codes. What they mean and how severe they are stands in codes.
const (
	LoopStalled          Code = "loop_stalled"
	LoopSilent           Code = "loop_silent"
	Stopping             Code = "stopping"
	NoPlan               Code = "no_plan"
	PlanRefused          Code = "plan_refused"
	NotSaved             Code = "not_saved"
	ClockWentBack        Code = "clock_went_back"
	TraceStopped         Code = "trace_stopped"
	AllPaused            Code = "all_paused"
	ServicePaused        Code = "service_paused"
	WeightsHeld          Code = "weights_held"
	InputMissing         Code = "input_missing"
	ShortLifetime        Code = "short_lifetime"
	Dropping             Code = "dropping"
	DemandDoesNotFit     Code = "demand_does_not_fit"
	LocalityOverloaded   Code = "locality_overloaded"
	LocalityDrained      Code = "locality_drained"
	LocalityUnhealthy    Code = "locality_unhealthy"
	EndpointsUnhealthy   Code = "endpoints_unhealthy"
	RequestsFailing      Code = "requests_failing"
	SourceFailing        Code = "source_failing"
	LocalityFailing      Code = "locality_failing"
	EndpointFailing      Code = "endpoint_failing"
	LocalityFailsPartly  Code = "locality_failing_partly"
	LocalityUnreachable  Code = "locality_unreachable"
	LocalityReturning    Code = "locality_returning"
	CapacityContradicted Code = "capacity_contradicted"
	LimitWithoutEffect   Code = "limit_without_effect"
	ClientsDeviate       Code = "clients_deviate"
	SharesOscillate      Code = "shares_oscillate"
	ModeRolledBack       Code = "mode_rolled_back"
	ClientsRefuse        Code = "clients_refuse"
	ClientsBehind        Code = "clients_behind"
	ServiceUnknown       Code = "service_unknown"
	ClusterUnknown       Code = "cluster_unknown"
	LocalityUnknown      Code = "locality_unknown"
	ClientsSilent        Code = "clients_silent"
	NoLoad               Code = "no_load"
	ORCAIgnored          Code = "orca_ignored"
	ExcessReports        Code = "excess_reports"
	MassFailureHeld      Code = "mass_failure_held"
	AllEndpointsDown     Code = "all_endpoints_down"
	CheckersEnded        Code = "checkers_ended"
	CheckersShort        Code = "checkers_short"
	CheckerRefused       Code = "checker_refused"
	ProbePathFailing     Code = "probe_path_failing"
	RemovalHeld          Code = "removal_held"
	FileRefused          Code = "file_refused"
	DiscoveryLost        Code = "discovery_lost"
	DiscoveryWaiting     Code = "discovery_waiting"
	DiscoveryHeld        Code = "discovery_held"
	DiscoveryRefused     Code = "discovery_refused"
	EndpointsLeftOut     Code = "endpoints_left_out"
	PolicyNotInForce     Code = "policy_not_in_force"
	BudgetNearlyUsed     Code = "budget_nearly_used"
	CertificateExpired   Code = "certificate_expired"
	CertificateEnds      Code = "certificate_ends"
	GroupLeaderless      Code = "group_leaderless"
	TakeoverFailed       Code = "takeover_failed"
	ReplicaLost          Code = "replica_lost"
	ElectionLost         Code = "election_lost"
	ElectionFull         Code = "election_full"
	ReplicasDiffer       Code = "replicas_differ"
	GroupEvent           Code = "group_event"
)

// CodeInfo describes one code.
type CodeInfo struct {
	Code     Code
	Severity Severity // usually
	Meaning  string
}

// codes has all codes in the order of the reference page.
var codes = []CodeInfo{
	{LoopStalled, Critical, "the control loop makes no decisions"},
	{LoopSilent, Critical, "the control loop does not answer in time"},
	{NotSaved, Critical, "Isobar can't write something to the state directory, or the directory was replaced; a restart would lose the newest state"},
	{RequestsFailing, Critical, "more than 1% of the requests of a service fail"},
	{SourceFailing, Critical, "all requests from the clients of one locality fail"},
	{LocalityFailing, Critical, "all requests to a locality fail"},
	{LocalityUnreachable, Critical, "no source reaches a locality"},
	{AllEndpointsDown, Critical, "every endpoint of a service is down, so clients try all of them"},
	{MassFailureHeld, Critical, "checkers vote down many endpoints at once; Isobar holds these verdicts"},
	{Dropping, Critical, "the assignment makes clients drop requests"},
	{DiscoveryWaiting, Critical,
		"the other control plane, DNS or Kubernetes has not listed a service yet: clients of the service get no endpoints, or none in a locality"},
	{CertificateExpired, Critical, "a certificate has expired, or is not valid yet"},
	{GroupLeaderless, Critical, "no replica of the group leads: weights are frozen, and writes are refused"},
	{TakeoverFailed, Critical, "the leader of the group can't take over, for example because it can't read what operators wrote, so it makes no plan"},
	{ReplicaLost, Warning, "the replica that answers can't reach another replica of the group"},
	{ElectionLost, Warning, "the election engine of the group does not answer, or was restored from a backup"},
	{GroupEvent, Warning, "something happened in the group within the last hour that an operator should check, such as writes that the election engine had lost"},
	{NoPlan, Warning, "no plan has been published yet"},
	{PlanRefused, Warning, "a plan violated an invariant; the previous assignment stayed in force"},
	{Stopping, Warning, "the server is stopping"},
	{ClockWentBack, Warning, "the clock of the machine went back. The item is critical while Isobar can't save state"},
	{TraceStopped, Warning, "the rolling trace has stopped"},
	{AllPaused, Warning, "the weights of all services are frozen by operators"},
	{WeightsHeld, Warning, "the weights of a service are held"},
	{InputMissing, Warning, "reports, health or endpoints of a service are missing"},
	{ShortLifetime, Warning, "assignments expire at clients while Isobar restarts"},
	{DemandDoesNotFit, Warning, "demand exceeds the ceilings: Isobar raises them"},
	{LocalityOverloaded, Warning, "a locality is planned above its declared capacity"},
	{LocalityDrained, Warning, "a locality has too few healthy endpoints and gets no traffic; a notice if operators took all its endpoints out of traffic"},
	{LocalityUnhealthy, Warning, "no endpoint of a locality is healthy"},
	{EndpointsUnhealthy, Warning, "some endpoints of a locality are unhealthy; a notice if they are fewer than a fifth"},
	{LocalityFailsPartly, Warning, "more than 5% of the requests to a locality fail, but at most 1% of the service's requests"},
	{EndpointFailing, Warning, "more than 10% of the requests to an endpoint fail, far more than at the other endpoints of its locality"},
	{LocalityReturning, Warning, "a locality works again, and its share returns step by step"},
	{CapacityContradicted, Warning, "the declared capacity differs from the observed one"},
	{LimitWithoutEffect, Warning, "a limit has no effect"},
	{ClientsDeviate, Warning, "clients do not follow their shares"},
	{SharesOscillate, Warning, "shares oscillate under steady demand and are damped"},
	{ModeRolledBack, Warning, "a service in mode auto stepped back"},
	{ClientsRefuse, Warning, "clients reject resources"},
	{ClientsBehind, Warning, "clients have not acknowledged a response for a long time"},
	{ServiceUnknown, Warning, "clients subscribe to a service that does not exist"},
	{LocalityUnknown, Warning, "clients are in a locality that no service and no network entry names; a notice if the region is known"},
	{ClientsSilent, Warning, "clients subscribe to a service and report no load"},
	{NoLoad, Warning, "clients subscribe to services and report no load for any of them; a notice if they report load for other services"},
	{ExcessReports, Warning, "a client sends load reports far too often, and most are ignored"},
	{CheckersEnded, Warning, "checkers disconnected after Isobar assigned a service to them"},
	{CheckersShort, Warning, "endpoints have fewer checkers than configured, or in fewer zones, or no checker supports their check"},
	{CheckerRefused, Warning, "a checker is refused repeatedly"},
	{ProbePathFailing, Warning, "checkers in some zones can't reach endpoints that checkers in other zones reach: the path between them is broken"},
	{RemovalHeld, Warning, "the configuration removes endpoints or services in use, and Isobar holds the removal"},
	{FileRefused, Warning, "a file on disk can't be used; its previous content is in force"},
	{DiscoveryLost, Warning, "the other control plane, DNS or Kubernetes can't be reached"},
	{DiscoveryHeld, Warning, "another control plane, DNS or Kubernetes no longer lists the endpoints of a service or of a locality, " +
		"or most of them stop being ready at once. Isobar keeps the endpoints that it had"},
	{DiscoveryRefused, Warning, "Isobar refuses endpoints from the other control plane, DNS or Kubernetes"},
	{EndpointsLeftOut, Warning, "Isobar can't use some endpoints of the Kubernetes cluster, for example because their zone is not known"},
	{PolicyNotInForce, Warning, "a LoadBalancingPolicy of the Kubernetes cluster is not in force for one of its targets, or its status can't be written"},
	{BudgetNearlyUsed, Warning, "80% or more of a limit of the server is used"},
	{CertificateEnds, Warning, "a certificate expires soon"},
	{ElectionFull, Warning, "the election engine of the group has little space left, has an alarm, or lacks a member"},
	{ReplicasDiffer, Warning, "the replicas of a group have different configuration files"},
	{ServicePaused, Notice, "the weights of a service are frozen by an operator"},
	{ORCAIgnored, Notice, "clients of a service with `orca` ignore the utilization that endpoints report: grpc-js and Envoy before 1.37"},
	{ClusterUnknown, Notice, "load reports name a cluster that is not a service"},
}

var severities = func() map[Code]Severity {
	out := make(map[Code]Severity, len(codes))
	for _, c := range codes {
		out[c.Code] = c.Severity
	}
	return out
}()

// NewAttention makes an item with the usual severity of its code.
func NewAttention(code Code, format string, args ...any) Attention {
	return Attention{Code: code, Severity: severities[code], Text: printable(fmt.Sprintf(format, args...), maxAttentionText)}
}

// Of adds the service.
func (a Attention) Of(service string) Attention {
	a.Service = service
	return a
}

// At adds the locality.
func (a Attention) At(l isobar.Locality) Attention {
	a.Locality = l
	return a
}

// By adds the client or the checker.
func (a Attention) By(client string) Attention {
	a.Client = client
	return a
}

// As replaces the severity.
func (a Attention) As(s Severity) Attention {
	a.Severity = s
	return a
}

// See adds the command to run next. Its words are quoted where a shell would see
// more in them than a word: names come from strangers, too.
func (a Attention) See(format string, words ...any) Attention {
	for i, w := range words {
		words[i] = ShellWord(fmt.Sprint(w))
	}
	a.Next = printable(fmt.Sprintf(format, words...), maxAttentionText)
	return a
}

// ShellWord quotes a text so that it is one word of a command to paste.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && !strings.HasPrefix(s, "-") && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// AttentionTexts lists the sentences of items.
func AttentionTexts(items []Attention) []string {
	out := make([]string, len(items))
	for i := range items {
		out[i] = items[i].Text
	}
	return out
}

// sortAttention sorts by severity; within one, by code, then by what it is about.
func sortAttention(items []Attention) {
	place := make(map[Code]int, len(codes))
	for i, c := range codes {
		place[c.Code] = i
	}
	slices.SortStableFunc(items, func(a, b Attention) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(place[a.Code], place[b.Code]),
			strings.Compare(a.Service, b.Service), a.Locality.Compare(b.Locality), strings.Compare(a.Client, b.Client))
	})
}

// inOrder reports whether nothing but notices is among the items.
func inOrder(items []Attention) bool {
	return !slices.ContainsFunc(items, func(a Attention) bool { return a.Severity != Notice })
}
