package volume

import (
	"context"
	"errors"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What brokers ask each other.
const (
	aboutVolumes = "volumes"
	// aboutVolume asks whether a broker has one of an ID of All.
	aboutVolume = "volume"
)

// listQuestion asks for the volumes of a tenant, and for all that there are if it is empty.
type listQuestion struct{ Tenant string }

// idQuestion names a volume as All does.
type idQuestion struct{ ID string }

// Answers are what this broker tells others of its volumes.
func (s *Service) Answers() peer.Answers {
	return peer.Answers{
		aboutVolumes: peer.Answering(func(_ context.Context, q listQuestion) ([]Info, error) {
			if q.Tenant == "" {
				return s.All(), nil
			}
			return s.List(tenant.Tenant{Name: q.Tenant}), nil
		}),
		aboutVolume: peer.Answering(func(_ context.Context, q idQuestion) (bool, error) { return s.has(q.ID), nil }),
	}
}

// ListEverywhere is List for the volumes of all brokers, of dead ones too. The error is SB009
// where not all that live have answered.
func (s *Service) ListEverywhere(ctx context.Context, who tenant.Tenant) ([]Info, error) {
	all, err := s.everywhere(ctx, who.Name, s.List(who))
	if err != nil {
		return nil, err
	}
	return all, nil
}

// AllEverywhere is All for the volumes of all brokers, of dead ones too. With a peer.SilentError
// come all but those of who has not answered.
func (s *Service) AllEverywhere(ctx context.Context) ([]Info, error) {
	return s.everywhere(ctx, "", s.All())
}

func (s *Service) everywhere(ctx context.Context, owner string, own []Info) ([]Info, error) {
	told, err := peer.AskAll[[]Info](ctx, s.o.Others, aboutVolumes, listQuestion{owner})
	if _, some := peer.Silent(err); !some {
		return nil, err
	}
	away, awayErr := s.away(ctx, owner)
	if awayErr != nil {
		return nil, awayErr
	}
	if len(told) == 0 && len(away) == 0 {
		return own, err
	}
	named := func(infos []Info, broker string) []Info {
		for i := range infos {
			infos[i].Broker = broker
		}
		return infos
	}
	parts := [][]Info{named(own, s.o.BrokerID), away}
	for _, t := range told {
		parts = append(parts, named(t.Answer, t.By.ID))
	}
	all, _ := peer.Merge(0, compareInfo, parts...)
	return all, err
}

// away are the volumes on the disks of dead brokers.
func (s *Service) away(ctx context.Context, owner string) (all []Info, err error) {
	err = peer.Away(ctx, s.o.Others, string(store.Volumes), owner, func(broker string, r Record) {
		if owner == "" && r.State != Removed || r.named(owner, r.Name) {
			all = append(all, Info{Record: r, Broker: broker})
		}
	})
	return all, err
}

// elsewhere is the error for a volume of a tenant that is not here: another broker may have it.
func (s *Service) elsewhere(who tenant.Tenant, name string, absent error) error {
	if !volumeName.MatchString(name) {
		return absent
	}
	return s.o.Finder.VolumeElsewhere(who.Name, name, absent)
}

// anyElsewhere is the error for a volume of whomever that is not here.
func (s *Service) anyElsewhere(ctx context.Context, id string) error {
	told, err := peer.AskAll[bool](ctx, s.o.Others, aboutVolume, idQuestion{id})
	for _, t := range told {
		if t.Answer {
			return peer.Elsewhere(t.By)
		}
	}
	if err != nil {
		return err
	}
	return noSuchVolume("")
}

// has reports whether there is a volume of an ID of All.
func (s *Service) has(id string) bool {
	v, stranger := s.identified(id)
	return stranger || v != nil
}

// errApart is the refusal of volumes that are not on one machine.
var errApart = sdk.FieldErrorf(sdk.CodeInvalidRequest, "volumes", "must be of one machine; these are on several")

// allHere returns why an instance cannot have volumes here: another broker has them, or one of
// them.
func (s *Service) allHere(who tenant.Tenant, mounts []Mount) error {
	s.mu.Lock()
	var absent []string
	for _, m := range mounts {
		if s.find(who, m.Name) == nil {
			absent = append(absent, m.Name)
		}
	}
	s.mu.Unlock()
	if len(absent) == 0 {
		return nil
	}
	err := s.elsewhere(who, absent[0], noSuchVolume("volumes"))
	if len(absent) < len(mounts) && (peer.Has(err) || errors.Is(err, peer.ErrDown)) {
		return errApart
	}
	return err
}
