package admin

// Codes are all codes, in the order of the reference page.
var Codes = codes
