// Package health measures what the reports of health checkers cost: read from
// the wire, booked by endpoint, collected, and counted into verdicts.
package health
