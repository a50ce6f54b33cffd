// Package console holds the tests of the admin page and of the API's documentation in a real
// browser, over the real broker: what somebody does there who has read nothing, whether the
// page keeps secrets to itself, and whether everybody can use it. What is served, without a
// browser, is tested in broker/console.
package console
