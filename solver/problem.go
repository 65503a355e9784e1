// Package solver decides where load should go: it minimises the latency of all
// requests over the flows from sources to localities, and proves with a lower
// bound how close to the optimum it came. It knows numbers and indices only.
//
// The cost of a service with sources s and localities l, in requests/s * ms, for
// flows x_sl and the load y_l that they sum up to in each locality:
//
//	sum_sl x_sl (w_sl + price_sl)  +  sum_l y_l t_l + Q_l(y_l + b_l)
//	t_l = 1000 n_l / K_l                                   service time, ms
//	Q_l = 1000 r_l u^sqrt(2(n_l/r_l + 1)) / (1 - u)        u = (y_l + b_l) / K_l
//
// w is network latency, K capacity, n servers, r queues, b unmanaged load; see
// [Service] and [Locality]. Q_l is the rate times the mean waiting time of r_l
// independent M/M/(n_l/r_l) queues, by the approximation of H. Sakasegawa, "An
// approximation formula Lq = alpha rho^beta / (1-rho)", Annals of the Institute
// of Statistical Mathematics 29 (1977); above u = 0.98 it goes on as its tangent.
// All demand is served, and every load stays at or below its ceiling, unless that
// can't be: see [Service.MaxShed] and [ServiceSolution.Scale].
package solver

import "errors"

// Problem is one or more services to solve. Units: requests/s, milliseconds.
// Rates go up to 1e12 requests/s, times up to 1e9 ms; see Validate.
type Problem struct {
	Services []Service
}

// Service is one service with its sources s and localities l. Where others call
// it, the localities of its callers are sources too: see [Problem.Sources]. What
// they demand follows from what their own services serve there.
type Service struct {
	Demand     []float64   // per source of its own, requests/s, >= 0; below 1e-9 there is none
	Localities []Locality  // where it runs
	Latency    [][]float64 // [s][l] network latency w_sl, ms, >= 0
	Price      [][]float64 // [s][l] price of a request, in ms; nil = 0 everywhere
	Allowed    [][]bool    // [s][l]; nil = everything is allowed; calls must be allowed everywhere
	MaxShed    float64     // fraction of the demand that may be shed when it does not fit, [0, 1]; then ceilings are raised
	Calls      []Call      // requests that one request to this service causes

	// Variability is, per source, how far its demand varies around its mean faster than
	// flows can follow, as a fraction of it: the standard deviation, [0, 1]; nil = 0.
	// Sources vary independently of each other. See [Objective] for what it costs.
	// Where demand does not fit beneath the ceilings it has no influence on the
	// flows. Services that calls connect must not have any.
	Variability []float64 `json:"Swing"` //nolint:tagliatelle // as replicas of earlier versions call it

	// Previous holds the flows of the last solution [s][l] (nil = none): among
	// solutions within 0.01 ms of mean latency (and 0.4% of the cost) the nearest
	// one is taken. They may belong to other demand: their shares count. Without
	// them ties are split in proportion to headroom under the ceilings.
	Previous [][]float64
	// Ties is the part of what ties may cost that may be spent on staying near
	// Previous, (0, 1]; 0 = all of it.
	Ties float64
	// WarmPrices holds the prices of the last solution [l] (nil = none). As long
	// as they prove that the shares of Previous, or else of Last, are still as good
	// as ties may be, that is the answer, after 0 iterations. Otherwise the solver
	// starts from them. Absurd ones are ignored.
	WarmPrices []float64
	// Last holds the flows of the last solution [s][l] (nil = none), where they are
	// not yet what Previous says, because of pacing and the like. They may belong
	// to other demand, too.
	Last [][]float64
	// WarmVariability is, beside WarmPrices, the Variability of the last solution (nil =
	// nothing).
	WarmVariability *VariabilityPrices `json:"WarmSwing"` //nolint:tagliatelle // as replicas of earlier versions call it
}

// Locality is the capacity of a service in one locality.
type Locality struct {
	Capacity float64 // K_l, requests/s at utilization 1, >= 1e-6; 0 removes the locality
	Servers  float64 // n_l, requests worked on at once, may be fractional, <= 1e9; 0 = no queue term
	Queues   float64 // r_l, independent queues, >= 1 (0 is read as 1)
	Ceiling  float64 // highest utilization to plan for, [0.001, 1] (0 is read as 0.8)
	// Unmanaged is b_l, requests/s that land there whatever the flows are, >= 0. Files for
	// `isobar solve` call it background.
	Unmanaged float64 `json:"Background"` //nolint:tagliatelle // as replicas of earlier versions call it
}

// Call is a call from one service of the problem to another, from the locality
// where the request that causes it is served. Calls must not go in a circle.
type Call struct {
	Service    int     // index into Problem.Services; each at most once
	PerRequest float64 // requests caused by one request, (0, 1e6]
}

// Sentinel errors of Solve; they are wrapped with the place.
var (
	// ErrInvalid marks a number that is out of its range, or slices that do
	// not fit together.
	ErrInvalid = errors.New("invalid problem")
	// ErrCycle says that calls lead back to where they came from.
	ErrCycle = errors.New("calls go in a circle")
)

// Solution is the answer to a Problem.
type Solution struct {
	Objective  float64 // requests/s * ms: divide by the demand for mean latency
	LowerBound float64 // no feasible flow can be below it
	Gap        float64 // (Objective - LowerBound) / Objective, in [0, 1]; 0 if both are 0
	ExcessMS   float64 // (Objective - LowerBound) / demand served, calls not counted
	Services   []ServiceSolution
}

// ServiceSolution is the answer for one service.
type ServiceSolution struct {
	// Objective counts the service's own requests; these four mean what they mean
	// in [Solution]. LowerBound, Gap and ExcessMS are 0 where Joint is set: what is
	// best for all may be worse for one, so that only the totals are certified.
	Objective, LowerBound, Gap, ExcessMS float64

	Joint bool // calls connect the service with others: they were solved together

	Flows       [][]float64 // [s][l] requests/s
	Load        []float64   // [l] y_l, requests/s without unmanaged load
	Utilization []float64   // [l] (y+b)/K; 0 where K = 0 and nothing lands
	// Prices are p_l [l], ms: what one more request/s in l costs all requests together, also
	// where nothing flows yet. Where nothing can land (no capacity, or unmanaged load fills it), the
	// least price at which no source would want to go there. A request of any source is placed
	// best where way + p_l is least, with calls where way + p_l + what the calls cost from l on
	// is.
	Prices []float64
	Scale  []float64 // [l] factor by which the ceiling was raised for overflow, >= 1
	// CeilingScale is the largest of Scale: 1 when everything fits.
	CeilingScale float64
	Shed         []float64 // [s] requests/s shed
	Unreachable  []float64 // [s] requests/s without any allowed locality
	// CallCosts is, per locality, what the calls of a request that is served there
	// cost at least, with all that follows, in ms; nil where nothing is called.
	CallCosts []float64
	// CallsServed is, per call of the service, the fraction of calls that is
	// served: the rest is shed, or has no locality to go to.
	CallsServed []float64
	// Variability completes Prices if demand varies; nil if it does not.
	Variability *VariabilityPrices `json:"Swing"` //nolint:tagliatelle // as replicas of earlier versions call it
	Iterations  int                // of the interior point; 0 where the last solution still holds
}
