// Package dataplane predicts what Envoy and gRPC do with an endpoint
// assignment: which priority takes how much, when panic sets in, and what share
// of the traffic each locality and each endpoint gets. It works on plain
// values and follows the integer arithmetic of the data planes.
//
// Formulas (Envoy's load balancer; gRPC's priority and weighted-locality
// policies), with n = hosts - excluded hosts and f = the overprovisioning
// factor in percent; hosts that drain are excluded:
//
//	H_p = min(100, f*healthy/n)   D_p = min(100, f*degraded/n)   0 when n = 0
//	N   = min(100, sum H + sum D)
//	healthy load of p = min(what remains, H_p*100/N), in order; degraded likewise
//	panic of p        = N < 100 and 100*(healthy+degraded)/n < threshold, in whole percent
//	locality weight   = w * min(1, f/100 * eligible/n of the locality)
//
// gRPC knows no overprovisioning and no panic: the first priority with a usable
// endpoint takes everything.
package dataplane
