package peer

import (
	"errors"
	"fmt"
	"net/url"
)

// HeaderXBrokerHop has the Hop of a call that was passed on. It is read from peers alone: what a client
// says there is replaced when its call is passed on.
const HeaderXBrokerHop = "X-Broker-Hop"

// Hop is what only the first broker knows of a call that it passes on. The rest is in the
// request itself, which is passed on as it came.
type Hop struct {
	// From is the ID of the broker that passes the call on.
	From string
	// Remote is the address of the client.
	Remote string
	// Scheme is http or https: how the client has reached the first broker.
	Scheme string
	// Door is the front door whose own listener the call came by; empty for the listener of
	// all APIs.
	Door string
	// Inside is the front door that asks, in the client's name, by the broker's own API;
	// empty where the client itself asks.
	Inside string
	// About is what a broker asks itself, in nobody's name: it is a question of Others, and no
	// call of a client's.
	About string
	// Placed says that the peer has nothing of it yet, and makes it. If another broker was
	// faster, the call is passed on once more, to that.
	Placed bool
}

// String is the value of HeaderXBrokerHop.
func (h Hop) String() string {
	values := url.Values{}
	if h.Placed {
		values.Set("placed", "1")
	}
	for name, value := range map[string]string{"from": h.From, "remote": h.Remote, "scheme": h.Scheme, "door": h.Door, "inside": h.Inside, "about": h.About} {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values.Encode()
}

// ParseHop reads a value of HeaderXBrokerHop.
func ParseHop(text string) (Hop, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return Hop{}, fmt.Errorf("read %s: %w", HeaderXBrokerHop, err)
	}
	h := Hop{
		From: values.Get("from"), Remote: values.Get("remote"), Scheme: values.Get("scheme"),
		Door: values.Get("door"), Inside: values.Get("inside"), About: values.Get("about"), Placed: values.Get("placed") == "1",
	}
	if h.About != "" {
		return h, nil
	}
	if h.Remote == "" || h.Scheme != "http" && h.Scheme != "https" {
		return Hop{}, errors.New("what a peer has passed on says neither who asks nor how")
	}
	return h, nil
}
