"""The descriptions of streams groups' topologies (KIP-1331), which only brokers with a plugin take:
not served."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = ["STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE"]

STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = Api(
    93, "StreamsGroupTopologyDescriptionUpdate", "0", flexible=0,
    request="""
        GroupId:str, MemberId:str, TopologyEpoch:i32,
        TopologyDescription{
            Subtopologies[]{
                SubtopologyId:str,
                Nodes[]{
                    Name:str, NodeType:i8, SourceTopics:[]str, SinkTopic:str(null =null),
                    Stores:[]str, Successors:[]str
                }
            },
            GlobalStores[]{
                Source{
                    Name:str, NodeType:i8, SourceTopics:[]str, SinkTopic:str(null =null),
                    Stores:[]str, Successors:[]str
                },
                Processor{
                    Name:str, NodeType:i8, SourceTopics:[]str, SinkTopic:str(null =null),
                    Stores:[]str, Successors:[]str
                }
            }
        }
    """,
    response="ThrottleTimeMs:i32, ErrorCode:i16, ErrorMessage:str(null =null)",
)  # fmt: skip
