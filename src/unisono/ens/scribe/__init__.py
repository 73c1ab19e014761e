"""The overlay: a notification service of equals, without a broker (paper 004).

Pure state machines; the simulator (`sim/mesh.py`) and the UDP runtime (`net/mesh.py`) drive the
same ones; links are for UDP only.

    node.py       one process of the mesh: puts the parts together
    cluster.py    the processes of one domain: who lives, who coordinates (bully election)
    contacts.py   whom a process knows of, for when it is on its own
    interest.py   what this process and the members of its cluster subscribe to
    site.py       the coordinator of one slot: its place in the ring and in the trees
    pastry.py     the ring of clusters: who is nearest to a key, and the next hop to there
    trees.py      who passes the events of a topic on to whom (Scribe), one tree per coordinator
    diversity.py  which parents have ways that share the fewest devices
    survey.py     what possible parents have offered, at the leader, who decides
    scouts.py     which members reach more of the other clusters than the coordinator
    recent.py     what was heard lately: duplicates, gaps, and what others may have missed
    messages.py   what they tell each other
    link.py       whole messages over datagrams: in order, sent again until they have arrived
    lanes.py      the two lanes of a link
    options.py    how many trees, backups and leaves; how often they speak
"""
