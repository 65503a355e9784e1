// Package loop measures the control loop without its streams: what one tick
// costs that books reports, solves, assigns, checks and encodes.
package loop
