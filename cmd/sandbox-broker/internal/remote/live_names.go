package remote

import (
	"context"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// namesTimeout is how long somebody may wait who has pressed the key for completion.
const namesTimeout = 2 * time.Second

// LiveNames are the names of a kind that there are, for a word that somebody has begun:
// instances, sessions, providers, tenants, contexts, commands, or places (INSTANCE:PATH).
// The flags are those of the command line so far. Where nobody answers there are none.
func LiveNames(ctx context.Context, console *Console, kind, word string, flags map[string]string) []string {
	if kind == "contexts" {
		_, file, err := loadContexts(console)
		if err != nil {
			return nil
		}
		return slices.Sorted(maps.Keys(file.Contexts))
	}
	if flags["token-file"] == "-" {
		return nil // a token that will be typed later
	}
	connection := Connection{
		URL: flags["url"], Context: flags["context"], TokenFile: flags["token-file"],
		CAFile: flags["ca-file"], CertFile: flags["cert-file"], KeyFile: flags["key-file"],
	}
	broker, err := connection.Client(console)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, namesTimeout)
	defer cancel()
	names, err := liveNames(ctx, broker, kind, word)
	if err != nil {
		return nil
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func liveNames(ctx context.Context, broker *client.Client, kind, word string) (names []string, err error) {
	switch kind {
	case "instances", "sessions":
		return instanceNames(ctx, broker, kind == "instances", word)
	case "places":
		if place := placeOf(word); place.instance != "" {
			return pathsIn(ctx, broker, place)
		}
		names, err = instanceNames(ctx, broker, true, word)
		for n := range names {
			names[n] += ":"
		}
		return names, err
	case "providers":
		list, err := broker.Providers(ctx)
		for _, p := range list.Providers {
			names = append(names, p.ID)
		}
		return names, err
	case "executions":
		list, err := client.ExecutionsOf(broker).List(ctx)
		for _, e := range list.Executions {
			names = append(names, e.ExecutionID)
		}
		return names, err
	case "tenants":
		list, err := broker.Admin().Tenants(ctx)
		for _, t := range list.Data {
			names = append(names, t.Name)
		}
		return names, err
	default:
		return nil, nil
	}
}

// instanceNames are sessions, and where an instance may be named otherwise too, the short
// IDs of those that have none of their own: or the full ones, if that is how it begins.
func instanceNames(ctx context.Context, broker *client.Client, ids bool, word string) (names []string, err error) {
	all, err := allInstances(ctx, broker, nil)
	for _, i := range all {
		if strings.HasPrefix(i.SessionID, word) {
			names = append(names, i.SessionID)
		}
		if !ids {
			continue
		}
		if strings.Contains(word, ":") {
			names = append(names, i.ID)
		} else if !strings.HasPrefix(i.SessionID, word) || word == "" {
			names = append(names, shortID(i.ID))
		}
	}
	return names, err
}

// pathsIn are what is in a directory of an instance.
func pathsIn(ctx context.Context, broker *client.Client, at place) (names []string, err error) {
	id, err := instanceNamed(ctx, broker, at.instance)
	if err != nil {
		return nil, err
	}
	directory, _ := path.Split(at.path)
	query := url.Values{"depth": {"1"}}
	if directory != "" {
		query.Set("path", directory)
	}
	list, err := broker.ListFiles(ctx, id, query)
	for _, f := range list.Files {
		name := at.instance + ":" + directory + path.Base(f.Path)
		if f.Type == "directory" {
			name += "/"
		}
		names = append(names, name)
	}
	return names, err
}
